"""Solvers: arrays in, arrays out. No policy, no job, no clock; a status that is not optimal is an error."""
