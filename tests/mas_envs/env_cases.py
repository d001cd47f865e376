"""Every environment in small, and a policy that says the right kinds of things, and wrong ones."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np

import mas_envs
from mas_envs import Response
from mas_envs.episodes.schema import encode

ARITH = {"source": "arith", "split": "dev", "n": 12}
WORLD = {"source": "tinyworld", "split": "dev", "n": 12}

VARIANTS = [
    ("math-v0", {"max_rounds": 3, "tasks": ARITH}),
    ("math-v0", {"final_review": True, "invalid_penalty": 0.25, "tasks": ARITH,
                 "shaping": {"verifier": "mas_envs.shaping:right_verdict"}}),
    ("math-v0", {"compat": "drmas", "tasks": ARITH}),
    ("math-single-v0", {"tasks": ARITH}),
    ("math-single-v0", {"compat": "drmas", "tasks": ARITH}),
    ("search-v0", {"tasks": WORLD, "shaping": {"search": "mas_envs.shaping:found_support"}}),
    ("search-v0", {"tasks": WORLD, "force_answer": True, "max_turns": 2, "top_k": 1,
                   "malformed_verdict": {"missing": "yes"}, "invalid_penalty": {"search": 0.1}}),
    ("search-v0", {"tasks": WORLD, "compat": "drmas"}),
    ("search-single-v0", {"tasks": WORLD}),
    ("search-single-v0", {"tasks": WORLD, "force_answer": True, "max_turns": 1}),
    ("search-single-v0", {"tasks": WORLD, "compat": "drmas"}),
    ("debate-v0", {"tasks": ARITH}),
    ("debate-v0", {"tasks": ARITH, "debaters": 3, "rounds": 1, "invalid_penalty": 0.5}),
    ("vote-v0", {"tasks": ARITH}),
    ("proposer-solver-v0", {"tasks": ARITH, "invalid_penalty": {"solver": 0.1}}),
]  # fmt: skip
NAMES = [f"{id}-{n}" for n, (id, _) in enumerate(VARIANTS)]

BY_ROLE = {
    "solver": [r"\boxed{3}", r"so \boxed{12}", r"<think>\boxed{1}</think>\boxed{ \frac{1}{2} }"],
    "debater": [r"\boxed{3}", "I say 7: \\boxed{7} é 中"],
    "judge": [r"\boxed{3}", r"<think>hm</think>The second: \boxed{7}"],
    "proposer": ["<problem>What is 1+2?</problem>", "x <problem>2+2 = ?</problem>"],
    "search": ["<think>t</think><search>Upper Mervbury</search>", "<search>Ada  Vaughan</search>"],
    "answer": ["<think>t</think><answer>1879</answer>", "<answer>Ada Vaughan</answer>"],
    "searcher": ["<search>Otto Valente</search>", "<answer>1826</answer>"],
}  # fmt: skip
MALFORMED = [
    "", "\ufffd", r"\boxed{", "<verify>maybe</verify>", "<verify>", "<search>a", "<answer>b",
    "<think>",
    "<verify>yes</verify><verify>no</verify>", "<verify>approve</verify><verify>reject</verify>",
    "<search>a</search><search>b</search>", "<problem>", "中文 {question}",
]  # fmt: skip


def said(role: str, verdicts: list[str], rng: np.random.Generator) -> str:
    wellformed = BY_ROLE.get(role) or [f"<verify>{one}</verify>" for one in verdicts]
    texts = MALFORMED if rng.random() < 0.25 else wellformed
    return texts[int(rng.integers(len(texts)))]


class Talk:
    """Answers as `request.seed` says, with token ids."""

    async def act(self, request):
        rng = np.random.default_rng(request.seed)
        shown = request.messages[-1].content
        verdicts = ["yes", "no"] if "<verify>yes" in shown else ["approve", "reject"]
        ids = rng.integers(0, 1000, size=6, dtype=np.int32)
        return Response(
            text=said(request.role, verdicts, rng), prompt_ids=ids[:2], ids=ids[2:],
            log_probs=np.float32(-0.5) * ids[2:].astype(np.float32), versions=((0, 3),),
            model="talk",
        )  # fmt: skip


def make(variant):
    id, kwargs = variant
    return mas_envs.make(id, **kwargs)


def collect(env, tasks, policy=None, **options):
    return asyncio.run(mas_envs.collect(env, policy or Talk(), tasks, **options))


def timeless(episode):
    """The episode as JSON, without the clock."""
    events = [msgspec.structs.replace(event, seconds=0.0) for event in episode.events]
    return encode(msgspec.structs.replace(episode, events=events, started=0.0, seconds=0.0))


def play(env, *texts, task=None, seed=0):
    """One episode in the AEC view; returns who was asked. What is left of the texts is ignored."""
    env.reset(seed=seed, options={"task": task} if task else None)
    asked = []
    for text in texts:
        if env.terminations[env.agent_selection]:
            break
        asked.append(env.agent_selection)
        env.step(text)
    return asked
