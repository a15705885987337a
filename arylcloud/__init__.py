"""Train on any cloud's GPU market at the lowest cost, on time, without losing work."""

__version__ = "0.1.0"
