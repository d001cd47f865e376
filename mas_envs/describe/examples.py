"""The episode of each shipped environment that docs/environments.md shows: answers as data."""

from __future__ import annotations

from mas_envs.episodes.schema import Episode
from mas_envs.workflow import WorkflowEnv

EXAMPLES: dict[str, tuple[int, tuple[str, ...]]] = {
    "math-v0": (0, (
        r"4+6=10, 10+4=13: \boxed{13}",
        "10+4 is 14, not 13. <verify>reject</verify>",
        r"4+6=10, 10+4=14: \boxed{14}",
    )),
    "math-single-v0": (0, (r"4+6=10, 10+4=14: \boxed{14}",)),
    "search-v0": (1, (
        "Nothing has been found yet. <verify>no</verify>",
        "<search>Haddad College town</search>",
        "The town is Ibbgate; its country is missing. <verify>no</verify>",
        "<search>Ibbgate country</search>",
        "All is there. <verify>yes</verify>",
        "<answer>Ordalovia</answer>",
    )),
    "search-single-v0": (0, (
        "<think>I have to look her up.</think><search>Bela Molnar born</search>",
        "<think>The first passage says it.</think><answer>1915</answer>",
    )),
    "debate-v0": (0, (
        r"4+6+4 = \boxed{14}",
        r"4+6=10, 10+4=13: \boxed{13}",
        r"debater_1 has added wrongly: 10+4 is \boxed{14}",
        r"debater_0 is right: \boxed{14}",
        r"Both agree now, and rightly: \boxed{14}",
    )),
    "vote-v0": (0, (r"\boxed{14}", r"4+6=10, 10+4=13: \boxed{13}", r"14 = \boxed{28/2}")),
    "proposer-solver-v0": (0, (
        "<problem>Five shelves hold 3 books each; one is lent. How many are left?</problem>",
        r"15-1 = \boxed{14}",
        r"\boxed{15}",
        r"5+3-1 = \boxed{7}",
        r"\boxed{14}",
    )),
}  # fmt: skip
"""Id → the place of the task in the default set, and what the agents answer, in turn."""


def play_example(env: WorkflowEnv) -> Episode:
    """The episode of `EXAMPLES` in an environment made under that id, without arguments."""
    place, answers = EXAMPLES[env.spec.id]
    env.reset(seed=0, options={"task": env.tasks[place].id})
    for text in answers:
        env.step(text)
    return env.episode
