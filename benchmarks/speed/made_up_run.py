"""Settings of runs that only the speed scripts play."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.run_folder import Settings
from mas_envs import Sampling, WorkflowEnv


def settings_of(env: WorkflowEnv, k: int) -> Settings:
    """A run of all of the environment's tasks, by a policy that nobody has to name."""
    rows = len(env.tasks)
    return Settings(
        suite={"name": "made up", "rows": rows, "sha256": env.tasks.digest, "file_sha256": None},
        questions=rows,
        env=env.spec.to_dict(),
        prompts=env.prompts_id,
        policies={"all": {"target": "made up"}},
        sampling=Sampling(max_tokens=4096),
        k=k,
        seed=0,
    )


def alone(function: Callable[..., Any], *args: object) -> Any:
    """`function(*args)` in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(function, *args).result()
