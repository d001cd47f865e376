"""How fast a retriever is, and how good."""
