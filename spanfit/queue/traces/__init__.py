"""Readers of what schedulers wrote down about jobs that ended: text in, jobs out. One file a source."""
