"""In which environment a suite is played: as the team was trained, unless the flags differ."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.prompt_copies import without_folders
from benchmarks.suites import check_blind, suite
from benchmarks.trained import Trained
from mas_envs.by_name import by_name
from mas_envs.console import key_values
from mas_envs.errors import UserError
from mas_envs.registration import keywords_of, make, spec
from mas_envs.tasks import TaskSet
from mas_envs.workflow import WorkflowEnv

OURS = ("tasks", "prompts", "render_mode")  # arguments that are not given by --env-arg


class Flags(NamedTuple):
    """What the command line says of the environment; None or nothing where it is silent."""

    env: str | None = None
    env_arg: Sequence[str] = ()
    prompts: str | None = None
    max_tokens: int | None = None

    def __str__(self) -> str:
        pairs: list[tuple[str, Any]] = [
            ("env", self.env),
            *(("env-arg", pair) for pair in self.env_arg),
        ]
        pairs += [("prompts", self.prompts), ("max-tokens", self.max_tokens)]
        return " ".join(f"--{name} {shlex.quote(str(v))}" for name, v in pairs if v is not None)

    def completed(self, defaults: Flags) -> Flags:
        """These flags, and where they are silent the defaults."""
        return Flags(
            env=self.env if self.env is not None else defaults.env,
            env_arg=[*defaults.env_arg, *self.env_arg],  # of equal keys the last one counts
            prompts=self.prompts if self.prompts is not None else defaults.prompts,
            max_tokens=self.max_tokens if self.max_tokens is not None else defaults.max_tokens,
        )


def as_trained(trained: Trained, given: Flags) -> Flags:
    """The flags that repeat what a team was trained with, without those that are `given`.

    Arguments and prompts belong to an environment: another `--env` takes none of them.
    """
    tokens = trained.max_tokens if given.max_tokens is None else None
    if given.env not in (None, trained.env.id):
        return Flags(max_tokens=tokens)
    set_by_flag = {pair.partition("=")[0] for pair in given.env_arg}
    args = {key: v for key, v in trained.env.args.items() if key not in (*OURS, *set_by_flag)}
    prompts = trained.env.prompts or trained.env.args.get("prompts")
    if isinstance(prompts, dict):  # as the flag is written
        prompts = ",".join(f"{agent}={chosen}" for agent, chosen in prompts.items())
    return Flags(
        env=trained.env.id if given.env is None else None,
        env_arg=[f"{key}={json.dumps(value)}" for key, value in args.items()],
        prompts=prompts if given.prompts is None else None,
        max_tokens=tokens,
    )


def environment(name: str, tasks: TaskSet, flags: Flags) -> WorkflowEnv:
    """The environment over a suite's tasks, with a spec that names no path of this machine.

    Raises `UserError` that names the flags.
    """
    given = key_values(flags.env_arg, "--env-arg")
    if taken := given.keys() & set(OURS):
        raise UserError(
            f"--env-arg {min(taken)}=…; this one is set by mas-bench (--data, --prompts)"
        )
    try:
        args = _suite_arguments(name, flags, given) | given
        if flags.prompts is not None:
            args["prompts"] = flags.prompts
        made = make(flags.env or suite(name).env.id, tasks=tasks, **args)
        check_blind(made)
    except UserError as error:
        typed = str(flags._replace(max_tokens=None))
        raise UserError(f"{typed}: {error}" if typed else str(error)) from None
    recorded = dict(made.spec.kwargs)
    recorded["tasks"] = {key: v for key, v in (tasks.spec or {}).items() if key != "data"}
    if recorded["tasks"].get("source") == "suite":
        recorded["tasks"]["name"] = Path(recorded["tasks"]["name"]).name  # of FILE.yaml#NAME
    if flags.prompts is not None:
        recorded["prompts"] = without_folders(flags.prompts)
    made.spec = replace(made.spec, kwargs=of_any_machine(recorded))
    return made


def of_any_machine(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a run records them: of an index of this machine only its name."""
    recorded = dict(kwargs)
    if ":" not in (corpus := str(recorded.get("retriever", ":"))):
        recorded["retriever"] = Path(corpus).name
    return recorded


def _suite_arguments(name: str, flags: Flags, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the suite says of its environment; of another `--env` what that one takes, too.

    Raises `UserError` for an argument that the suite needs and nobody gave.
    """
    default = suite(name).env
    args, needs = dict(default.args), list(default.needs)
    if flags.env not in (None, default.id) and (args or needs):
        env = str(flags.env)
        known = keywords_of(by_name(env if ":" in env else spec(env).entry_point)) or ()
        args = {key: value for key, value in args.items() if key in known}
        needs = [key for key in needs if key in known]
    if given.get("compat") is not None:
        args.pop("grading", None)  # it brings its own
    for key in needs:
        if key not in given:
            raise UserError(f"suite {name!r} needs --env-arg {key}=…; the default is made for "
                            f"other questions (mas-envs show {default.id})")  # fmt: skip
    return args
