"""The search environments, and the small world of passages and questions they play in."""
