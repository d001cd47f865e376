"""What a submission says about itself. A submission is a zip of three members at most:

manifest.json         this record
episodes.jsonl.zst    every conversation, one JSON object per line, zstd frames
prompts.toml          only when the run used a prompt set of its own
"""

from __future__ import annotations

from typing import Any

import msgspec

from mas_envs.episodes.schema import Sampling
from mas_envs.errors import BadFile

SCHEMA = 1
MANIFEST, EPISODES, PROMPTS = "manifest.json", "episodes.jsonl.zst", "prompts.toml"


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which questions: `sha256` is `benchmarks.suites.fingerprint` of their content."""

    name: str
    rows: int
    sha256: str
    file_sha256: str | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member of the zip other than the manifest."""

    sha256: str
    bytes: int


class Score(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A declared number in percent and its question-clustered 95 % interval."""

    value: float
    low: float
    high: float
    questions: int
    samples: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module. `models` are the names that the policies gave themselves, by role.

    `policies` and `sessions` (versions, git commit, times) are the run's own record: they are
    published as declared, nothing can recompute them.
    """

    schema: int = SCHEMA
    system: str
    team: str
    suite: Suite
    env: dict[str, Any]
    prompts: str
    policies: dict[str, dict[str, Any]]
    models: dict[str, list[str]]
    sampling: Sampling
    k: int
    seed: int
    sessions: list[dict[str, Any]]
    scores: dict[str, Score]
    members: dict[str, Member]


class _Version(msgspec.Struct):
    schema: Any = None


def encode_manifest(manifest: Manifest) -> bytes:
    """Readable JSON, the same bytes for the same manifest."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n"


def decode_manifest(content: bytes, where: object) -> Manifest:
    """The inverse. Raises `BadFile` for another schema or anything that is no manifest."""
    where = f"{where}: {MANIFEST}"
    try:
        schema = msgspec.json.decode(content, type=_Version).schema
        if schema != SCHEMA:
            fix = "use the mas-gym release that packed it"
            raise BadFile(where, f"schema {schema!r} is not {SCHEMA}", fix=fix)
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(where, f"not a manifest ({error})") from None
    if manifest.k < 1 or manifest.suite.rows < 1:
        raise BadFile(
            where, f"k = {manifest.k}, rows = {manifest.suite.rows}; both must be positive"
        )
    return manifest
