"""The environment and the policies to go on with from a run's stored episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.diagnostics.references import target
from benchmarks.environment import of_any_machine
from benchmarks.policies import Source, Team, team
from benchmarks.prompt_copies import copied_prompts
from benchmarks.run_folder import Stored
from mas_envs.errors import UnknownName, UserError
from mas_envs.policies.named import targets_named
from mas_envs.protocol import role_of
from mas_envs.registration import EnvSpec, make
from mas_envs.workflow import WorkflowEnv

RESAMPLE = "resample"
"""In place of a reference: the agent's own policy once more, whose credit is 0 but for chance."""


def stored_environment(
    stored: Stored, given: Mapping[str, Any] | None = None, prompts: str | None = None
) -> WorkflowEnv:
    """The environment that played the run, without tasks: episodes hold their own.

    `given` are arguments that a run records without this machine's folders (`retriever`), `prompts`
    those of a run that holds no copy of its own. Raises `UserError` where something is missing.
    """
    recorded = stored.settings.env
    if not recorded.get("id") or not recorded.get("entry_point"):
        raise UserError(f"{stored.folder}: does not say which environment played it, so nothing "
                        "can be replayed")  # fmt: skip
    kwargs = recorded["kwargs"] | dict(given or {})
    args = {key: value for key, value in kwargs.items() if key != "tasks"}
    try:
        with copied_prompts(stored.folder, args.get("prompts")) as copies:
            if (chosen := copies if prompts is None else prompts) is not None:
                args["prompts"] = chosen
            env = make(EnvSpec(recorded["id"], recorded["entry_point"], args))
    except UserError as error:
        fix = "where a file is missing give --env-arg retriever=… or --prompts FILE"
        made = f"{stored.folder}: its environment cannot be made here"
        raise UserError(f"{made} ({error}); {fix}") from None
    if env.prompts_id != stored.settings.prompts:
        raise UserError(f"{stored.folder}: was played with other prompts than {recorded['id']} has "
                        "here; give them with --prompts FILE")  # fmt: skip
    kwargs.pop("prompts", None)
    if "prompts" in recorded["kwargs"]:
        kwargs["prompts"] = recorded["kwargs"]["prompts"]
    env.spec = replace(env.spec, kwargs=of_any_machine(kwargs))
    return env


def with_reference(
    stored: Stored,
    env: WorkflowEnv,
    agent: str,
    reference: str,
    chosen: Sequence[str] = (),
    source: Source | None = None,
) -> tuple[Team, list[str]]:
    """The policies, `reference` in the place of `agent` (an id or a role), and what to warn of.

    `chosen` as for `mas-bench run`; empty: those that played the run. Raises `UnknownName` for the
    agent, and as `benchmarks.policies.team` does.
    """
    roles = list(dict.fromkeys(map(role_of, env.possible_agents)))
    if agent not in (known := [*roles, *env.possible_agents]):
        raise UnknownName("agent", agent, known, where="--agent")
    recorded = stored.settings.policies
    targets = targets_named(chosen) or {who: one["target"] for who, one in recorded.items()}
    if reference != RESAMPLE:
        targets = {who: one for who, one in targets.items() if role_of(who) != agent}
        targets[agent] = target(reference)
    made = team([f"{who}={one}" if who else one for who, one in targets.items()], env,
                source or Source())  # fmt: skip
    warnings = []
    for other in env.possible_agents:
        if agent in (other, role_of(other)) and reference != RESAMPLE:
            continue
        was, now = _record(recorded, other), _record(made.records, other)
        if any(was.get(key) != now.get(key) for key in ("target", "fingerprint")):
            before, after = (f"{one.get('target')}" for one in (was, now))
            after += "" if before != after else " whose files differ"
            warnings.append(
                f"{other} was played by {before}, now by {after}: that is in the credit, too"
            )
    return made, warnings


def _record(records: Mapping[str, Mapping[str, Any]], agent: str) -> Mapping[str, Any]:
    return records.get(agent) or records.get(role_of(agent)) or {}
