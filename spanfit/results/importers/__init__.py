"""Readers of what other programs print about collectives; pure: text in, values out."""
