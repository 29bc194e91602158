"""Parallel layouts, volumes and the operations of a training step."""
