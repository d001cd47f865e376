"""Indexes on disk: made once, checked, opened."""
