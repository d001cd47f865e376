"""The argument `grading` of the math environments: played, recorded, replayed, recomputed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mas_envs
from benchmarks.cli import app as bench
from leaderboard.pack import pack
from leaderboard.verify import verify
from mas_envs import Response, TaskSet, replay
from mas_envs.episodes.schema import ToolResult, decode, encode
from mas_envs.errors import ReplayMismatch, UserError
from mas_envs.tools import call_now
from tests.mas_envs.env_cases import play

HALF = TaskSet([("What is a half?", r"\frac{1}{2}", {})])
UNREDUCED, OTHER = r"\boxed{2/4}", r"\boxed{1/3}"
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"
PLAYED = {
    "math-v0": (UNREDUCED, APPROVE),
    "math-single-v0": (UNREDUCED,),
    "debate-v0": (OTHER, OTHER, OTHER, OTHER, UNREDUCED),
    "vote-v0": (UNREDUCED, UNREDUCED, OTHER),
    "proposer-solver-v0": ("<problem>p</problem>", UNREDUCED, OTHER, OTHER, OTHER),
}


@pytest.mark.parametrize("id", PLAYED)
@pytest.mark.parametrize(
    ("grading", "right", "named"),
    [
        (None, True, None),
        ("default", True, None),
        ({"fractions": "any"}, True, None),
        ("strict", False, "strict"),
        ("drmas", False, "drmas"),
        ({"fractions": "reduced"}, False, {"fractions": "reduced"}),
    ],
)
def test_an_environment_grades_as_it_was_told(
    id: str, grading: Any, right: bool, named: Any
) -> None:
    chosen = {} if grading is None else {"grading": grading}
    env = mas_envs.make(id, tasks=HALF, **chosen)
    play(env, *PLAYED[id])
    episode = decode(encode(env.episode))
    assert episode.grade.correct is right
    assert episode.env["kwargs"].get("grading") == grading
    calls = [event for event in episode.events if isinstance(event, ToolResult)]
    assert calls and all(call.args.get("policy") == named for call in calls)
    assert all(call_now(env.tools["grade"], call.args) == call.result for call in calls)
    again = mas_envs.make(mas_envs.EnvSpec(**episode.env))
    assert replay(again, episode).episode.grade == episode.grade


def test_an_episode_replays_only_under_its_own_policy() -> None:
    env = mas_envs.make("math-v0", tasks=HALF, grading="strict")
    play(env, *PLAYED["math-v0"])
    with pytest.raises(ReplayMismatch):
        replay(mas_envs.make("math-v0", tasks=HALF), env.episode)


@pytest.mark.parametrize("id", ["math-v0", "math-single-v0"])
def test_compatibility_grades_as_the_reference_and_refuses_another_policy(id: str) -> None:
    env = mas_envs.make(id, tasks=HALF, compat="drmas")
    play(env, *PLAYED[id])
    call = next(event for event in env.episode.events if isinstance(event, ToolResult))
    assert call.args["policy"] == "drmas" and env.episode.reward == 0.0
    for grading in ("strict", "drmas", {"units": "required"}):
        with pytest.raises(UserError, match="grading means nothing with compat='drmas'"):
            mas_envs.make(id, tasks=HALF, compat="drmas", grading=grading)


@pytest.mark.parametrize(
    ("options", "earned"),
    [
        ({}, [0.5, -0.5]),
        ({"grading": "strict"}, [-0.5, 0.5]),
        ({"compat": "drmas"}, [-0.5, 0.5]),
    ],
)
def test_the_right_verdict_is_the_environments(options: Any, earned: list[float]) -> None:
    hooks = {"verifier": "mas_envs.shaping:right_verdict"}
    for verdict, reward in zip((APPROVE, REJECT), earned, strict=True):
        env = mas_envs.make("math-v0", tasks=HALF, shaping=hooks, **options)
        texts = (UNREDUCED, verdict) if verdict == APPROVE else (UNREDUCED, verdict, OTHER)
        play(env, *texts)
        assert [t.reward for t in env.episode.turns if t.role == "verifier"] == [reward]


def test_a_draft_is_read_as_the_reference_reads_it_for_its_verdict() -> None:
    """There, what follows the second `</think>` is not scored."""
    hooks = {"verifier": "mas_envs.shaping:right_verdict"}
    draft = r"<think>a</think>\boxed{\frac12}</think>\boxed{7}"
    for options, reward in (({}, -0.5), ({"compat": "drmas"}, 0.5)):
        env = mas_envs.make("math-v0", tasks=HALF, shaping=hooks, **options)
        play(env, draft, APPROVE)
        assert env.episode.turns[1].reward == reward
        assert env.episode.reward == float(reward > 0)


def test_rollouts_record_the_policy() -> None:
    class Half:
        async def act(self, request: Any) -> Response:
            return Response(text=APPROVE if request.role == "verifier" else UNREDUCED, model="m")

    env = mas_envs.make("math-v0", tasks=HALF, grading="strict")
    (episode,) = asyncio.run(mas_envs.collect(env, Half(), list(HALF)))
    assert episode.grade is not None and episode.grade.correct is False


def test_a_submission_with_rules_of_its_own_is_refused(tmp_path: Path) -> None:
    """A loose rounding would make many answers right; so would `compat`, which ignores units."""
    options = json.dumps({"preset": "drmas", "units": "optional"})
    for number, argument in enumerate((f"grading={options}", "compat=drmas")):
        run = tmp_path / f"run{number}"
        args = ["run", "arith", "--policy", "scripted:adder", "-k", "1", "--out", str(run)]
        done = CliRunner().invoke(bench, [*args, "--env-arg", argument])
        assert done.exit_code == 0, done.output
        pack(run, tmp_path / f"{run.name}.zip", system="the adder", team="tests")
        result = verify(tmp_path / f"{run.name}.zip")
        assert not result.passed
        said = " ".join(check.detail for check in result.checks if check.result == "fail")
        assert "answers to arith are graded by the suite's default, not by" in said
