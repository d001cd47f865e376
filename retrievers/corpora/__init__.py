"""Passages out of files: which files, what stands in them, and their bytes."""
