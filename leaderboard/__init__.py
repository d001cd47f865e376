"""Submissions: packed from a run, recomputed from their conversations."""
