"""The learner: the loss and its gradient over packed rows, optimizers, adapters, shards."""
