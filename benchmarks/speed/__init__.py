"""What the environments cost: waiting (`rollout`), CPU time (`steps`), memory (`memory`); and how
fast and how right the math grader is (`grading`); how fast engines sample, and how much of that
rollouts keep (`engines`).

Each is a script that prints one table, our side beside a baseline measured in the same run:

    python -m benchmarks.speed.rollout
    python -m benchmarks.speed.steps
    python -m benchmarks.speed.memory
    python -m benchmarks.speed.grading
    python -m benchmarks.speed.engines batching
    python -m benchmarks.speed.engines rollouts
"""
