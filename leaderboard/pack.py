"""From a run's folder to one file that can be handed in; the same run gives the same bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from benchmarks.metrics import summary
from leaderboard.manifest import (
    EPISODES,
    MANIFEST,
    PROMPTS,
    Manifest,
    Member,
    Score,
    Suite,
    encode_manifest,
)
from mas_envs.episodes.schema import Episode, Sampling, encode
from mas_envs.episodes.shards import pack_frame
from mas_envs.episodes.store import FRAME_EPISODES, read_episodes
from mas_envs.errors import BadFile, UserError
from mas_envs.files import whole_file

RUN_SCHEMA = 1  # of run.json; benchmarks.run_folder writes it


class _Settings(msgspec.Struct, kw_only=True):
    """What we read of a run's settings (benchmarks.run_folder writes them)."""

    suite: Suite
    questions: int
    env: dict[str, Any]
    prompts: str
    policies: dict[str, dict[str, Any]]
    sampling: Sampling
    k: int
    seed: int


class _Run(msgspec.Struct, kw_only=True):
    schema: int
    settings: _Settings
    sessions: list[dict[str, Any]]


def pack(run: Path, out: Path, *, system: str, team: str) -> Manifest:
    """Write the submission of a complete run. Raises `UserError`, `BadFile`; nothing half-written.

    The scores are computed here, from the very episodes that are packed.
    """
    record = _read_run(run)
    settings, rows = record.settings, record.settings.suite.rows
    if settings.questions != rows:
        raise UserError(f"{run}: {settings.questions} of the suite's {rows} questions were played; "
                        "a submission has them all, so run it without --limit")  # fmt: skip
    models: dict[str, set[str]] = defaultdict(set)
    if not out.parent.is_dir():
        raise BadFile(out, f"there is no folder {out.parent}", fix="create it first")
    with whole_file(out) as temporary, tempfile.TemporaryFile(dir=out.parent) as spool:
        try:
            found = summary(_written(_finished(run), spool, models), settings.k)
        except BadFile:
            raise
        except UserError as error:
            raise UserError(f"{run}: {error}") from None
        if found["episodes"] != rows * settings.k:
            raise UserError(f"{run}: {found['episodes']} of {rows * settings.k} samples; "
                            "finish it with the same mas-bench run command")  # fmt: skip
        if found["problem"]:
            raise UserError(f"{run}: {found['problem']}")
        members = {EPISODES: _member(spool)}
        if (run / PROMPTS).is_file():
            with (run / PROMPTS).open("rb") as file:
                members[PROMPTS] = _member(file)
        manifest = Manifest(
            system=system,
            team=team,
            suite=settings.suite,
            env=settings.env,
            prompts=settings.prompts,
            policies=settings.policies,
            models={role: sorted(names) for role, names in models.items()},
            sampling=settings.sampling,
            k=settings.k,
            seed=settings.seed,
            sessions=record.sessions,
            scores={name: msgspec.convert(found[name], Score) for name in found if "@" in name},
            members=members,
        )
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr(_zip_member(MANIFEST), encode_manifest(manifest))
            with archive.open(_zip_member(EPISODES), "w") as member:
                spool.seek(0)
                shutil.copyfileobj(spool, member)
            if PROMPTS in members:
                archive.writestr(_zip_member(PROMPTS), (run / PROMPTS).read_bytes())
    return manifest


def _read_run(run: Path) -> _Run:
    path = run / "run.json"
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Run)
    except OSError:
        raise BadFile(path, "no such file", fix="give a folder that mas-bench run wrote") from None
    except msgspec.DecodeError as error:
        raise BadFile(path, f"not a run's record ({error})") from None
    if record.schema != RUN_SCHEMA:
        fix = "use the mas-gym release that wrote it"
        raise BadFile(path, f"schema {record.schema} is not {RUN_SCHEMA}", fix=fix)
    return record


def _finished(run: Path) -> Iterator[Episode]:
    """Without forks, which are no samples, and without the failed: a later try took their place,
    or the run is not complete. The mark of the run's folder (provenance) stays behind.
    """
    for one in read_episodes(run / "episodes"):
        if one.status == "done" and "fork" not in one.provenance:
            one.provenance.pop("run", None)
            yield one


def _written(
    episodes: Iterable[Episode], file: IO[bytes], models: dict[str, set[str]]
) -> Iterator[Episode]:
    """Pass episodes through, writing them to `file` in frames and noting their models by role."""
    frame: list[bytes] = []
    for episode in episodes:
        for turn in episode.turns:
            models[turn.role].add(turn.model)
        frame.append(encode(episode) + b"\n")
        if len(frame) == FRAME_EPISODES:
            file.write(pack_frame(frame, level=9))
            frame.clear()
        yield episode
    if frame:
        file.write(pack_frame(frame, level=9))


def _member(file: IO[bytes]) -> Member:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return Member(sha256=digest.hexdigest(), bytes=file.tell())


def _zip_member(name: str) -> zipfile.ZipInfo:
    """A member whose bytes do not depend on the clock, the user or the zlib at hand."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, 0o644 << 16
    return info
