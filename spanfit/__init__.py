"""Measure what spanning minipods costs a training job, fit affinity weights, place jobs with them."""

__version__ = "0.1.0"
