"""Driving it hard: load on a real supervisor, faults, and the promises checked from outside; ``pool stress``."""
