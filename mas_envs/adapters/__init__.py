"""The environments as other libraries see them: `gymnasium` (one agent) and `torchrl`."""
