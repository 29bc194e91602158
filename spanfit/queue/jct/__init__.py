"""How long jobs will run: forecasts learnt from the history of a queue."""
