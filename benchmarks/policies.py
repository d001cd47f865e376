"""What `--policy` may say, and the policies it names.

runs/demo                     a run or checkpoint of mas-train: each role played by its model
PATH or org/name              a model's folder or id, run in this process (needs mas-gym[train])
http://host:8000/v1#MODEL     an OpenAI-compatible server
scripted:adder                a built-in script that plays the `arith` suite, to try things out
scripted:searcher             another one, for `tinyworld`
scripted:package.module:name  your own function of a `Request`
solver=…,verifier=…           one of these for each role, or for one agent (solver_1=…)
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.trained import checkpoint_of, read_trained
from mas_envs.by_name import by_name
from mas_envs.errors import UnknownName, UserError
from mas_envs.policies.base import Policy, Request
from mas_envs.policies.http import HTTPPolicy
from mas_envs.policies.named import targets_named
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.protocol import role_of
from mas_envs.workflow import WorkflowEnv
from retrievers.http.connections import without_password

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
HASHED_ENDS = 2**20  # bytes of a checkpoint file's head and tail that its fingerprint reads


class Source(NamedTuple):
    """How the named policies are reached."""

    model: str | None = None  # of a server whose URL names none
    api_key_env: str | None = None
    dtype: str | None = None
    device: str | None = None
    timeout_s: float = 600.0  # of one answer of a server


class Team(NamedTuple):
    """Policies by role, or by agent where those of a role differ, and what identifies each in the
    run's record.
    """

    policies: dict[str, Policy]
    records: dict[str, dict[str, Any]]


Made = dict[str, tuple[Policy, dict[str, Any]]]
"""By target: a policy and its record."""


def team(chosen: Sequence[str], env: WorkflowEnv, source: Source, made: Made | None = None) -> Team:
    """The policies of all agents of `env`. Those with equal targets share one policy.

    `made` holds policies of earlier calls with the same source, and gets the new ones.
    Raises `UserError` for a role without policy, `UnknownName` for a policy without role or agent.
    """
    targets = {
        agent: _model(agent, target)
        for agent, target in _targets(chosen, env.possible_agents).items()
    }
    made = {} if made is None else made
    for target in dict.fromkeys(targets.values()):
        if target not in made:
            made[target] = _policy(target, source)
    of_role: dict[str, set[str]] = {}
    for agent, target in targets.items():
        of_role.setdefault(role_of(agent), set()).add(target)
    named = {
        role_of(agent) if len(of_role[role_of(agent)]) == 1 else agent: target
        for agent, target in targets.items()
    }
    return Team(
        {name: made[target][0] for name, target in named.items()},
        {name: made[target][1] for name, target in named.items()},
    )


def _targets(chosen: Sequence[str], agents: Sequence[str]) -> dict[str, str]:
    """The target of each agent: its own, else its role's, else everybody's."""
    named, roles = targets_named(chosen), list(dict.fromkeys(map(role_of, agents)))
    for name in named:
        if name and name not in {*roles, *agents}:
            raise UnknownName("role", name, [*roles, *agents], where="--policy")
    found = {
        agent: next((named[key] for key in (agent, role_of(agent), "") if key in named), None)
        for agent in agents
    }
    if missing := list(dict.fromkeys(role_of(a) for a in agents if found[a] is None)):
        raise UserError(f"--policy names none for {', '.join(missing)}; add {missing[0]}=…")
    return {agent: target for agent, target in found.items() if target is not None}


def _model(agent: str, target: str) -> str:
    """Where a run or a checkpoint is named: its model for that agent."""
    checkpoint = checkpoint_of(target)
    return target if checkpoint is None else read_trained(checkpoint).model_of(agent, checkpoint)


def _policy(target: str, source: Source) -> tuple[Policy, dict[str, Any]]:
    if target.startswith("scripted:"):
        return ScriptedPolicy(_function(target), model=target), {"target": target}
    if target.startswith(("http://", "https://")):
        url, _, model = target.partition("#")
        model = model or source.model or ""
        if not model:
            raise UserError(f"which model of {url}? write {url}#MODEL, or pass --model MODEL")
        url, key = url.rstrip("/"), _api_key(source.api_key_env)
        policy = HTTPPolicy(
            url, model, api_key=key, timeout_s=source.timeout_s,
            concurrency=2**16,  # the rollout bounds it; a wait for a slot would count as latency
        )  # fmt: skip
        return policy, {"target": without_password(f"{url}#{model}")}
    return _engine(target, source)


def _api_key(variable: str | None) -> str | None:
    if variable is not None and not os.environ.get(variable):
        raise UserError(f"--api-key-env {variable}: this environment variable is not set")
    return os.environ[variable] if variable is not None else None


def _function(target: str) -> Callable[[Request], Any]:
    name = target.removeprefix("scripted:")
    if name in SCRIPTS:
        return SCRIPTS[name]
    if ":" not in name:
        raise UnknownName("script", name, [*SCRIPTS, "package.module:function"], where="--policy")
    try:
        function = by_name(name)
    except UserError as error:
        raise UserError(f"--policy scripted: {error}") from None
    if not callable(function):
        raise UserError(f"--policy {target}: not a function of a Request")
    return function  # type: ignore[no-any-return]


def _engine(target: str, source: Source) -> tuple[Policy, dict[str, Any]]:
    folder = Path(target)
    if not folder.is_dir() and not _HUB_ID.fullmatch(target):
        raise UserError(
            f"--policy {target}: no such folder; give a run's or a model's folder, a model id like "
            "Qwen/Qwen3-4B, http://host/v1#MODEL or scripted:package.module:function"
        )
    whole, adapter = folder / "config.json", folder / "adapter_config.json"
    if folder.is_dir() and not (whole.is_file() or adapter.is_file()):
        raise UserError(
            f"--policy {target}: neither a model (config.json) nor a run or checkpoint of mas-train"
        )
    try:
        import torch

        from mas_train.engines.hf_model import quiet
        from mas_train.engines.transformers import TransformersEngine
    except ImportError as error:
        raise UserError(
            f"--policy {target} runs here and needs {error.name}: pip install 'mas-gym[train]'"
        ) from None
    quiet()
    device = source.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = source.dtype or ("float32" if device == "cpu" else "bfloat16")
    engine = TransformersEngine.from_pretrained(target, dtype=dtype, device=device)
    record = {"target": target, "dtype": dtype, "device": device.partition(":")[0]}
    if folder.is_dir():
        record["fingerprint"] = fingerprint(folder)
    return engine, record


def fingerprint(folder: Path) -> str:
    """SHA-256 of a checkpoint's file names, sizes and first and last MiB of each file.

    Not the whole of every file: it tells two checkpoints of one model apart without reading
    hundreds of gigabytes.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(HASHED_ENDS))
            file.seek(max(file.tell(), size - HASHED_ENDS))
            digest.update(file.read())
    return digest.hexdigest()


# ---- built-in scripts ------------------------------------------------------------------------


def adder(request: Request) -> str:
    """Plays the arithmetic suite: adds the numbers, and is wrong as often as one turn in three."""
    sums = re.findall(r"\d+(?:\+\d+)+", request.messages[-1].content)
    total = sum(map(int, sums[0].split("+"))) if sums else 0
    chance = random.Random(request.seed).random()
    if request.role == "verifier":
        boxes = re.findall(r"\\boxed\{(-?\d+)\}", request.messages[-1].content)
        right = bool(boxes) and int(boxes[-1]) == total
        seen = right if chance < 0.8 else not right
        return f"I get {total}. <verify>{'approve' if seen else 'reject'}</verify>"
    guess = total if chance < 2 / 3 else total + 1 + int(chance * 30) % 3
    return f"{sums[0] if sums else '0'} makes \\boxed{{{guess}}}"


def searcher(request: Request) -> str:
    """Plays tinyworld: searches for the question once, and answers with a name or number that
    stands in the best passage and not in the question.
    """
    shown = request.messages[-1].content
    question = next(iter(re.findall(r"^Question: (.+)$", shown, re.M)), "")
    passages = re.findall(r"^\[\d+\] (.+)$", shown, re.M)
    if request.role == "verifier":
        return f"<verify>{'yes' if passages else 'no'}</verify>"
    if request.role != "answer" and not passages:
        return f"<search>{question}</search>"
    number = re.search(r"year|many|long", question)
    name = r"\d[\d,]*" if number else r"[A-Z]\w+(?: [A-Z]\w+)*"
    named = re.findall(r"[A-Z]\w+(?: [A-Z]\w+)*", question[1:])
    best = [one for one in passages if any(entity in one for entity in named)] or passages
    found = [one for one in re.findall(name, " ".join(best[:1])) if one not in question]
    guess = random.Random(request.seed).choice(found[:4]) if found else "unknown"
    return f"<answer>{guess}</answer>"


SCRIPTS: dict[str, Callable[[Request], str]] = {"adder": adder, "searcher": searcher}
