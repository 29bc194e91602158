"""Training steps of a real model, by torch's own parallelism: what the word of the proxies is checked against."""
