"""Replays of jobs over a cluster under the queue's own decisions, what they count, and sweeps of many."""
