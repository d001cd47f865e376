"""Episodes: the schema, the store, and everything that reads them."""
