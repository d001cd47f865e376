"""Engines: policies whose weights the trainer replaces (see base)."""
