"""Training steps that move a job's bytes in a job's order, without its model."""
