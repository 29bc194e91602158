"""Jobs that wait, nodes that are held for announced jobs, and the decisions between them."""
