"""Programs that take the place of real ones on PATH."""
