"""Spot under a deadline: what to hold now, so that the job ends in time for least money."""
