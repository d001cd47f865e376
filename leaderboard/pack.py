"""From a run's folder to one file that can be handed in; the same run gives the same bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import msgspec

from benchmarks.metrics import summary
from leaderboard.archive import LARGEST
from leaderboard.declared import Declared
from leaderboard.manifest import (
    EPISODES,
    MANIFEST,
    Manifest,
    Member,
    Score,
    decode_manifest,
    encode_manifest,
)
from leaderboard.run_record import RunRecord, declared_cost, prompt_files, read_run
from mas_envs.episodes.schema import Episode, encode
from mas_envs.episodes.shards import pack_frame
from mas_envs.episodes.store import FRAME_EPISODES, read_episodes
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.files import whole_file


def pack(
    run: Path, out: Path, *, system: str, team: str, declared: Declared | None = None
) -> Manifest:
    """Write the submission of a complete run. Raises `UserError`, `BadFile`; nothing half-written.

    The scores are computed here, from the very episodes that are packed.
    """
    declared = declared or Declared()
    record = read_run(run)
    prompts = prompt_files(run, record)
    if not out.parent.is_dir():
        raise BadFile(out, f"there is no folder {out.parent}", fix="create it first")
    _check_declared(run, record, (system, team), declared, out)
    with whole_file(out) as temporary, tempfile.TemporaryFile(dir=out.parent) as spool:
        written = _Written(spool)
        found = _scores(run, record, written)
        if spool.tell() > LARGEST[EPISODES]:
            raise UserError(f"{run}: {spool.tell()} bytes of conversations; a submission has at "
                            f"most {LARGEST[EPISODES]}")  # fmt: skip
        members = {EPISODES: _member(spool)}
        for name, content in prompts.items():
            digest = hashlib.sha256(content).hexdigest()
            members[name] = Member(sha256=digest, bytes=len(content))
        manifest = _manifest(run, record, written, found, members, (system, team), declared)
        encoded = encode_manifest(manifest)
        decode_manifest(encoded, out)  # what `verify` would refuse is refused here
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr(_zip_member(MANIFEST), encoded)
            with archive.open(_zip_member(EPISODES), "w") as member:
                spool.seek(0)
                shutil.copyfileobj(spool, member)
            for name, content in sorted(prompts.items()):
                archive.writestr(_zip_member(name), content)
    return manifest


def _check_declared(
    run: Path, record: RunRecord, names: tuple[str, str], declared: Declared, out: Path
) -> None:
    """Refuse names and texts at once, not after all conversations were compressed.

    What is declared by model, and files of training data, wait for the conversations. Raises
    `BadFile`.
    """
    at_once = msgspec.structs.replace(declared, revisions={}, parameters={}, training_files=())
    draft = _manifest(run, record, _Written(BytesIO()), {}, {}, names, at_once)
    decode_manifest(encode_manifest(draft), out)


def _scores(run: Path, record: RunRecord, written: _Written) -> dict[str, Any]:
    """Write the episodes, and say what they come to. Raises `UserError` where some are missing."""
    settings, wanted = record.settings, record.settings.suite.rows * record.settings.k
    try:
        found = summary(written.passed_on(_finished(run)), settings.k)
    except BadFile:
        raise
    except UserError as error:
        raise UserError(f"{run}: {error}") from None
    if found["episodes"] != wanted:
        raise UserError(f"{run}: {found['episodes']} of {wanted} samples; "
                        "finish it with the same mas-bench run command")  # fmt: skip
    if found["problem"]:
        raise UserError(f"{run}: {found['problem']}")
    return found


def _manifest(
    run: Path,
    record: RunRecord,
    written: _Written,
    found: dict[str, Any],
    members: dict[str, Member],
    names: tuple[str, str],
    declared: Declared,
) -> Manifest:
    settings = record.settings
    models = {role: sorted(spoke) for role, spoke in written.models.items()}
    known = sorted({model for spoke in models.values() for model in spoke})
    for where, by_model in (("revision", declared.revisions), ("parameters", declared.parameters)):
        for model in by_model:
            if model not in known:
                raise UnknownName("model", model, known, where=where)
    cost = declared.cost_usd
    return Manifest(
        system=names[0],
        team=names[1],
        suite=settings.suite,
        env=settings.env,
        prompts=settings.prompts,
        policies=settings.policies,
        models=models,
        sampling=settings.sampling,
        k=settings.k,
        seed=settings.seed,
        passages=settings.passages,
        sessions=record.sessions,
        scores={name: msgspec.convert(found[name], Score) for name in found if "@" in name},
        members=members,
        revisions=dict(declared.revisions),
        parameters=dict(declared.parameters),
        hardware=declared.hardware,
        contact=declared.contact,
        training=declared.training(settings.suite.name, written.questions.values()),
        cost_usd=declared_cost(run) if cost is None else cost,
    )


def _finished(run: Path) -> Iterator[Episode]:
    """Without forks, which are no samples, and without the failed: a later try took their place,
    or the run is not complete. The mark of the run's folder (provenance) stays behind.
    """
    for one in read_episodes(run / "episodes"):
        if one.status == "done" and "fork" not in one.provenance:
            one.provenance.pop("run", None)
            yield one


class _Written:
    """Episodes written to `file`; `models` by role, and each question once, by task."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.models: dict[str, set[str]] = defaultdict(set)
        self.questions: dict[str, str] = {}

    def passed_on(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """The episodes, while they are written in frames."""
        frame: list[bytes] = []
        for episode in episodes:
            for turn in episode.turns:
                self.models[turn.role].add(turn.model)
            self.questions.setdefault(episode.task, episode.question)
            frame.append(encode(episode) + b"\n")
            if len(frame) == FRAME_EPISODES:
                self._file.write(pack_frame(frame, level=9))
                frame.clear()
            yield episode
        if frame:
            self._file.write(pack_frame(frame, level=9))


def _member(file: IO[bytes]) -> Member:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return Member(sha256=digest.hexdigest(), bytes=file.tell())


def _zip_member(name: str) -> zipfile.ZipInfo:
    """A member whose bytes do not depend on the clock, the user or the zlib at hand."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, 0o644 << 16
    return info
