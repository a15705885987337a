"""Pipeline templates for every world size, ready before a node is lost (Oobleck, SOSP 2023)."""
