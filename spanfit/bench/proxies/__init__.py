"""Training steps without their model: the bytes, the order, the waiting and the compute of the real ones."""
