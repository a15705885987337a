"""Replays of one job with a deadline over traces of spot capacity, and the cheapest that could have been."""
