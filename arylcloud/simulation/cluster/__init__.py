"""A cluster of typed GPUs in simulated rounds: job traces, the round mechanism, and what came of it."""
