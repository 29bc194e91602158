"""Measurements: their schema, the shards ranks write, and the Parquet store."""
