"""A learner on several processes (`models.X.devices`): FSDP2 over gloo or nccl.

    this process                          rank 0 … N - 1, one process each
    ShardedLearner ── group.Group ──►  worker: Learner with `Shards`, 1/N of weights and state

The training loop is no rank itself: it asks all ranks the same thing and waits for answers or for
exit codes. So a rank that dies is an error within a moment, and never a collective that hangs.
"""
