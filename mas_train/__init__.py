"""The trainer: turns episodes into better weights. Start reading at `loop`."""
