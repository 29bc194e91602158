"""The step time of any placement, from the programs of its ranks and the links that they share."""
