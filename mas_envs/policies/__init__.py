"""Policies: what answers when an agent is asked."""
