"""Plans of what to measure, and the workers that measure it."""
