"""Clusters: nodes, switches, tiers, and the readers of files that describe them."""
