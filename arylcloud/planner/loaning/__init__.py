"""Aryl: training that borrows idle inference servers; its two phases, its placement, its reclaims."""
