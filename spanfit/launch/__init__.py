"""Texts and processes that start ranks: launch files, and the emulated testbed."""
