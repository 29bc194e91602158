"""Affinity weights: the model, the fit, and the file."""
