"""The decoder: its shape, its mathematics, how it is cut over a mesh, and its files."""
