"""The texts of an index on disk, and the order of their ids."""
