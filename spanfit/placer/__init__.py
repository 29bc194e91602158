"""Bounds, constructions and solvers that put a job's communication groups on minipods."""
