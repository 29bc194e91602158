"""One reader a source; each takes text and returns a Cluster."""
