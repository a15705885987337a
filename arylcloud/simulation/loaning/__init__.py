"""A training and an inference cluster, simulated by events: loans, elastic jobs, reclaims."""
