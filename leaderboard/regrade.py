"""A conversation of an environment that we do not have: graded again, not played again."""

from __future__ import annotations

import msgspec

from benchmarks.suites.spec import Suite
from leaderboard.environment import GRADERS, grading_options, suites_grading
from leaderboard.manifest import Manifest
from leaderboard.questions import Place
from leaderboard.replay import Report, check_turn, verdict
from mas_envs.episodes.schema import Episode, Grade, ToolResult
from mas_envs.seeds import environment_seed
from mas_envs.tasks import Task
from mas_envs.tools import call_now


def regraded(
    manifest: Manifest, suite: Suite | None, place: Place, stored: Episode, report: Report
) -> Grade | None:
    """Our grade of the answer that was graded last; None when there is none to grade.

    The call of the grader must have our gold and the suite's rules. Whether its response is what
    the conversation comes to, and what each agent was shown, is the submission's word.
    """
    group, task = place
    ours = {"env": manifest.env, "prompts": manifest.prompts, "group": group, "step": 0,
            "seed": environment_seed(manifest.seed, 0, task.id)}  # fmt: skip
    for name, value in ours.items():
        if getattr(stored, name) != value:
            report("settings", f"{name} is {getattr(stored, name)!r:.80}, not {value!r:.80}")
    for name, value in {"question": task.question, "gold": task.answer, "meta": task.meta}.items():
        if getattr(stored, name) != value:
            report("questions", f"{name} is {getattr(stored, name)!r:.80}, not {value!r:.80}")
    if stored.provenance:
        report("samples", f"provenance is {stored.provenance!r:.80}")
    _check_events(manifest, stored, report)
    if stored.grade is None:
        report("grades", "there is no grade")
        return None
    calls = [e for e in stored.events if isinstance(e, ToolResult) and e.tool == "grade"]
    if not calls:
        if stored.grade.correct is not False:
            report("grades", "nothing was graded, and it is not wrong")
            return None
        return stored.grade
    return _graded_again(suite, task, calls[-1], stored.grade, report)


def _check_events(manifest: Manifest, stored: Episode, report: Report) -> None:
    """Turns as declared; seeds by the place of the decision, which is that of any workflow."""
    if [event.index for event in stored.events] != list(range(len(stored.events))):
        report("replay", "its events are not numbered from 0 on")
    if not stored.turns:
        report("replay", "nobody says anything")
    for place, turn in enumerate(stored.turns):
        limit = min(turn.sampling.max_tokens, manifest.sampling.max_tokens)
        sampling = msgspec.structs.replace(manifest.sampling, max_tokens=limit)
        check_turn(manifest, turn, sampling, (stored.task, stored.sample, place), report)


def _graded_again(
    suite: Suite | None, task: Task, call: ToolResult, grade: Grade, report: Report
) -> Grade | None:
    kind = suite.grader if suite is not None else grade.grader.partition("-")[0]
    if kind not in GRADERS:
        report("grades", f"graded by {grade.grader!r:.80}, which is none of our graders")
        return None
    options = {key: v for key, v in call.args.items() if key not in ("response", "gold")}
    if options != (wanted := grading_options(kind, suites_grading(suite))):
        report("grades", f"graded with {options!r:.80}, not {wanted!r:.80}")
    if call.args.get("gold") != task.answer:
        report("grades", f"graded against {call.args.get('gold')!r:.80}, not the gold")
    response = call.args.get("response")
    if not isinstance(response, str):
        report("grades", f"graded was {response!r:.80}, which is no text")
        return None
    ours = call_now(GRADERS[kind], {"response": response, "gold": task.answer, **wanted})
    if ours != call.result or ours != msgspec.to_builtins(grade):
        report("grades", f"graded {verdict(call.result)}, we grade {verdict(ours)}")
    return msgspec.convert(ours, Grade)
