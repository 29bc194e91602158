"""Campaigns, and what their measurements say: curves and gains with intervals."""
