"""The environment and tasks of a run, checked against its agents. No torch is imported here."""

from __future__ import annotations

from mas_envs import TaskSet, WorkflowEnv, load_tasks, make
from mas_envs.errors import UserError
from mas_envs.protocol import role_of
from mas_train.config import Config


def make_env(config: Config) -> WorkflowEnv:
    """The environment of a run, with each agent's invalid-action penalty.

    Raises `UserError` unless `agents:` names exactly the environment's roles.
    """
    chosen = {} if config.env.prompts is None else {"prompts": config.env.prompts}
    arguments = {**config.env.args, **chosen}
    bare = make(config.env.id, **arguments)
    roles = {role_of(agent) for agent in bare.possible_agents}
    if missing := sorted(roles - set(config.agents)):
        raise UserError(f"agents: {config.env.id} has the roles {sorted(roles)}; add {missing}")
    if unknown := sorted(set(config.agents) - roles):
        raise UserError(f"agents: {config.env.id} has the roles {sorted(roles)}; remove {unknown}")
    penalties = {role: agent.invalid_penalty for role, agent in config.agents.items()}
    return make(config.env.id, **{"invalid_penalty": penalties, **arguments})


def run_tasks(config: Config) -> tuple[TaskSet, TaskSet]:
    """The training tasks and the dev tasks. Raises `UserError` naming the section."""
    loaded = []
    for name, keywords in (("train", config.tasks.train), ("dev", config.tasks.dev)):
        try:
            loaded.append(load_tasks(**keywords))
        except UserError as error:
            raise UserError(f"tasks.{name}: {error}") from None
    return loaded[0], loaded[1]
