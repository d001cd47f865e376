"""The demo: a small team that learns on a laptop, its model and how that was made."""
