"""The command line: one module a noun; heavy imports stay inside the commands."""
