"""How the queue decides: pure, from a state and an event to the next state and decisions."""
