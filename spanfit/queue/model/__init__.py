"""The words of the queue: nodes, jobs, rules, its state, what happens, and what is decided."""
