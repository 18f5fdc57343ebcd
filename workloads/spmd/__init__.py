"""A program of one's own on each host of a slice."""
