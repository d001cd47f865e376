"""The math environments, and their embedded problems."""
