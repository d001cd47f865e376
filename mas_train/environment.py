"""The environment and tasks of a run, checked against its agents. No torch is imported here."""

from __future__ import annotations

from typing import Any

from mas_envs import TaskSet, WorkflowEnv, load_tasks, make
from mas_envs.errors import UserError
from mas_envs.protocol import role_of
from mas_train.config import Config, Misconfigured


def make_env(config: Config) -> WorkflowEnv:
    """The environment of a run, with each role's invalid-action penalty.

    Raises `Misconfigured` for an argument that the environment refuses, unless `agents:` names each
    of its agents by role or id, and nothing else, and where agents of one role have different
    penalties.
    """
    chosen = {} if config.env.prompts is None else {"prompts": config.env.prompts}
    arguments = {**config.env.args, **chosen}
    try:
        bare = make(config.env.id, **arguments)
    except UserError as error:
        raise Misconfigured(f"{_key_at_fault(config, str(error))}: {error}") from None
    agents = bare.possible_agents
    roles = sorted({role_of(agent) for agent in agents})
    if missing := sorted({role_of(a) for a in agents if config.entry(a) not in config.agents}):
        raise Misconfigured(f"agents: {config.env.id} has the roles {roles}; add {missing}")
    if unknown := sorted(set(config.agents) - {*roles, *agents}):
        raise Misconfigured(f"agents: {config.env.id} has the roles {roles}; remove {unknown}")
    penalties: dict[str, float] = {}
    for agent in agents:
        penalty = config.agents[config.entry(agent)].invalid_penalty
        if penalties.setdefault(role_of(agent), penalty) != penalty:
            raise Misconfigured(
                f"agents.{config.entry(agent)}.invalid_penalty: {penalty:g} is not "
                f"{penalties[role_of(agent)]:g}, which others of its role have; a "
                "role has one penalty"
            )
    return make(config.env.id, **{"invalid_penalty": penalties, **arguments})


def _key_at_fault(config: Config, said: str) -> str:
    """The key whose value alone makes the environment say this, else the section."""
    keys: dict[str, dict[str, Any]] = {"env.id": {}, "env.prompts": {"prompts": config.env.prompts}}
    keys |= {f"env.args.{name}": {name: value} for name, value in config.env.args.items()}
    for key, argument in keys.items():
        try:
            make(config.env.id, **argument)
        except UserError as error:
            if str(error) == said:
                return key
    return "env"


def run_tasks(config: Config) -> tuple[TaskSet, TaskSet]:
    """The training tasks and the dev tasks. Raises `Misconfigured`."""
    loaded = []
    for name, keywords in (("train", config.tasks.train), ("dev", config.tasks.dev)):
        try:
            loaded.append(load_tasks(**keywords))
        except UserError as error:
            raise Misconfigured(f"tasks.{name}: {error}") from None
    return loaded[0], loaded[1]


def check_run_golds(env: WorkflowEnv, train: TaskSet, dev: TaskSet) -> None:
    """Raises `Misconfigured`, naming section and task, for a gold that no answer could ever equal.

    A line on stderr says what takes so long, if it does.
    """
    from rich.console import Console

    from mas_envs.grading.gold import check_golds

    for name, tasks in (("train", train), ("dev", dev)):
        try:
            check_golds(env, tasks, Console(stderr=True, markup=False).print)
        except UserError as error:
            raise Misconfigured(f"tasks.{name}: {error}") from None
