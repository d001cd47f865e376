"""What packing reads of a run's folder besides its conversations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.prompt_copies import sets_of
from leaderboard.archive import LARGEST, MOST_PROMPTS, PROMPT_FILE
from leaderboard.manifest import PROMPTS, Suite
from mas_envs.episodes.schema import Sampling
from mas_envs.errors import BadFile, UserError
from retrievers.http.connections import without_password

RUN_SCHEMA = 1  # of run.json; benchmarks.run_folder writes it


class RunSettings(msgspec.Struct, kw_only=True):
    """What we read of a run's settings (benchmarks.run_folder writes them)."""

    suite: Suite
    questions: int
    env: dict[str, Any]
    prompts: str
    policies: dict[str, dict[str, Any]]
    sampling: Sampling
    k: int
    seed: int
    passages: str | None = None
    credit: dict[str, Any] | None = None


class RunRecord(msgspec.Struct, kw_only=True):
    """The content of run.json."""

    schema: int
    settings: RunSettings
    sessions: list[dict[str, Any]]


class _Usage(msgspec.Struct):
    cost_usd: float | None = None


class _Summary(msgspec.Struct):
    usage: _Usage = msgspec.field(default_factory=_Usage)


def read_run(run: Path) -> RunRecord:
    """Raises `BadFile`; `UserError` for a run of a part of its suite."""
    path = run / "run.json"
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except OSError:
        raise BadFile(path, "no such file", fix="give a folder that mas-bench run wrote") from None
    except msgspec.DecodeError as error:
        raise BadFile(path, f"not a run's record ({error})") from None
    if record.schema != RUN_SCHEMA:
        fix = "use the mas-gym release that wrote it"
        raise BadFile(path, f"schema {record.schema} is not {RUN_SCHEMA}", fix=fix)
    if record.settings.credit is not None:
        fix = "give the folder of the run"
        raise BadFile(path, "the replays of mas-bench credit, not a run", fix=fix)
    for place, text in _texts(msgspec.to_builtins(record)):
        if without_password(text) != text:
            fix = "take what stands before the @ out of it"
            raise BadFile(path, f"{place} has a URL with a user or password", fix=fix)
    played, rows = record.settings.questions, record.settings.suite.rows
    if played != rows:
        raise UserError(f"{run}: {played} of the suite's {rows} questions were played; "
                        "a submission has them all, so run it without --limit")  # fmt: skip
    return record


def _texts(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """(place, text) of every text in JSON values."""
    if isinstance(value, str):
        yield at.lstrip("."), value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, f"{at}.{key}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _texts(one, f"{at}.{number}")


def declared_cost(run: Path) -> float | None:
    """What the run's summary.json says that all its calls cost, if it was played with --prices."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        content = (run / "summary.json").read_bytes()
        return msgspec.json.decode(content, type=_Summary).usage.cost_usd
    return None


def prompt_files(run: Path, record: RunRecord) -> dict[str, bytes]:
    """The prompt sets of the run's own, by member. Raises `BadFile` for one that is not there."""
    recorded = record.settings.env.get("kwargs", {}).get("prompts")
    found: dict[str, bytes] = {}
    for whose, own in sets_of(recorded).items() if isinstance(recorded, str) else ():
        if not own.endswith(".toml"):  # a shipped set
            continue
        name = f"prompts.{whose}.toml" if whose else PROMPTS
        if PROMPT_FILE.fullmatch(name) is None:
            raise BadFile(run / "run.json", f"prompts of {whose!r}, which is no role or agent")
        try:
            found[name] = (run / name).read_bytes()
        except OSError as error:
            fix = f"copy {own} there, as it was when the run was played"
            raise BadFile(run / name, f"cannot be read: {error.strerror}", fix=fix) from None
    if len(found) > MOST_PROMPTS or sum(map(len, found.values())) > LARGEST[PROMPTS]:
        raise UserError(f"{run}: {len(found)} files of prompts; a submission has at most "
                        f"{MOST_PROMPTS}, of {LARGEST[PROMPTS]} bytes in all")  # fmt: skip
    return found
