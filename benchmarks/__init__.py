"""Measuring: suites, k samples per question, honest intervals."""
