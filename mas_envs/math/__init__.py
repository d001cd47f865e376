"""The math environments, their prompts and their embedded problems."""
