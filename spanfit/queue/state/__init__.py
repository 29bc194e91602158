"""What a queue keeps: its state, its journal and what is to be done, in one SQLite file."""
