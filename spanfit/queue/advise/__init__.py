"""The value of waiting: whether a job gains by waiting for a better placement."""
