"""A queue in the world: what happened there since the last look, and who does what was decided."""
