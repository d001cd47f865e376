"""Small episodes told apart by a number, and folders of them."""

from __future__ import annotations

import numpy as np

from mas_envs import Episode, EpisodeWriter, Message, Turn, read_episodes
from mas_envs.episodes.index import read_index


def episode(number, size=0):
    turn = Turn(
        index=0, batch=0, agent="a_0", role="a", messages=(Message("user", f"q{number}"),),
        text=f"\ufffd\x00\u2028 {number} " + np.random.default_rng(number).bytes(size).hex(),
        prompt_ids=np.arange(5, dtype=np.int32), ids=np.arange(number % 7, dtype=np.int32),
        log_probs=np.full(number % 7, -0.5, np.float32),
        prompt_tokens=5, response_tokens=number % 7,
    )  # fmt: skip
    return Episode(env={}, prompts="p", task=f"{number:016x}", sample=number % 4, events=[turn],
                   reward=number / 8, status="failed" if number % 5 == 0 else "done")  # fmt: skip


def numbers(path):
    return [int(episode.task, 16) for episode in read_episodes(path)]


def write(folder, count, start=0, frame=None, **options):
    with EpisodeWriter(folder, **options) as writer:
        for number in range(start, start + count):
            writer.add(episode(number))
            if frame and (number + 1 - start) % frame == 0:
                writer.flush()
    return folder / "episodes-00000.jsonl.zst"


def index_of(numbers_, shard="episodes-00000.jsonl.zst"):
    return [
        (f"{n:016x}", n % 4, shard, n / 8, "failed" if n % 5 == 0 else "done") for n in numbers_
    ]


def index_without_offsets(folder):
    return [(r.task, r.sample, r.shard, r.reward, r.status) for r in read_index(folder)]
