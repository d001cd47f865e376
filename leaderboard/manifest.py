"""What a submission says about itself. A submission is a zip of these members:

manifest.json         this record
episodes.jsonl.zst    every conversation, one JSON object per line, zstd frames
prompts.toml          only when the run used a prompt set of its own,
prompts.ROLE.toml     or one for a role or agent
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from leaderboard.findings import printable
from mas_envs.episodes.schema import Sampling
from mas_envs.errors import BadFile

SCHEMA = 1
MANIFEST, EPISODES, PROMPTS = "manifest.json", "episodes.jsonl.zst", "prompts.toml"
DEEPEST = 16  # of lists and objects in the manifest
LONGEST = 300  # characters of what people write: contact, hardware, revisions; of a model
LONGEST_NAME = 100  # characters of a system, a team and a suite
NAMES = ("system", "team", "suite.name")
MOST_USD, MOST_PARAMETERS = 1e9, 1e15
EARLIEST, LATEST = 946_684_800, 7_258_118_400  # 2000-01-01 and 2200-01-01, seconds since 1970
MOST_EPISODES = 2_000_000  # what is remembered of each takes some hundred bytes


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


class TrainingData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data that a model of the system was trained on, as its team declares it.

    Of a file that was at hand when the run was packed: `sha256`, `rows`, and how many questions of
    the run touch it, by the kinds of `benchmarks.suites.contamination` (a question counts in each
    of its kinds) and in all (`touched`). None: nobody looked.
    """

    name: str
    sha256: str | None = None
    rows: int | None = None
    touched: int | None = None
    by_kind: dict[str, int] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module. `models` are the names that the policies gave themselves, by role.

    `policies` and `sessions` (package versions, git commit and whether it was changed, times in
    seconds since 1970) are the run's own record. `passages` is the digest of what was searched,
    where that is not the environment's own. What follows `members` is declared by whoever packs:
    `revisions` and `parameters` by model; `training` None means that nothing was said of it, []
    that the models were trained on nothing else than their public checkpoints; `contact` is not
    published. All that is believed: nothing can recompute it.
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
    passages: str | None = None
    sessions: list[dict[str, Any]]
    scores: dict[str, Score]
    members: dict[str, Member]
    revisions: dict[str, str] = {}
    parameters: dict[str, float] = {}
    hardware: str | None = None
    contact: str | None = None
    training: list[TrainingData] | None = None
    cost_usd: float | None = None


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
            raise BadFile(where, f"schema {schema!r:.80} is not {SCHEMA}", fix=fix)
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(where, f"not a manifest ({printable(str(error))})") from None
    for problem in _problems(manifest):
        raise BadFile(where, problem)
    return manifest


def _problems(manifest: Manifest) -> Iterator[str]:
    rows, k = manifest.suite.rows, manifest.k
    if k < 1 or rows < 1 or rows * k > MOST_EPISODES:
        yield (f"k = {k}, rows = {rows}; both must be positive, and at most {MOST_EPISODES:,} "
               "episodes")  # fmt: skip
    if not 0 <= manifest.seed < 2**63:
        yield f"seed {manifest.seed} is not from 0 to 2^63"
    for name in ("env", "policies", "sessions"):
        if not shallow(getattr(manifest, name), DEEPEST):
            yield f"{name} is nested more than {DEEPEST} deep"
    for what, text in _texts(manifest):
        most = LONGEST_NAME if what in NAMES else LONGEST
        if not text.isprintable() or not text.strip() or len(text) > most:
            yield f"{what} is {text!r:.80}; it must be 1 to {most} printable characters"
    numbers: list[tuple[str, float | None, float]] = [("cost_usd", manifest.cost_usd, MOST_USD)]
    numbers += [(model, count, MOST_PARAMETERS) for model, count in manifest.parameters.items()]
    for name, number, largest in numbers:
        if number is not None and not 0 <= number <= largest:  # nor is what is no number
            yield f"{name!r:.80} is {number}; it must be a number from 0 to {largest:.0e}"
    for session in manifest.sessions:
        for name in ("started", "finished"):
            if not _possible(session.get(name)):
                yield (f"the time at which a session {name} is none: seconds since 1970, in the "
                       "years 2000 to 2200")  # fmt: skip
    spoke = {model for models in manifest.models.values() for model in models}
    for model in (*manifest.revisions, *manifest.parameters):
        if model not in spoke:
            yield f"revisions or parameters of {model!r:.80}, which no role was played by"


def _texts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """What is shown of it, one by one: (what it is, the text)."""
    yield from [("system", manifest.system), ("team", manifest.team)]
    yield "suite.name", manifest.suite.name
    for role, models in manifest.models.items():
        yield "a role", role
        yield from (("a model", model) for model in models)
    yield from (("a revision", text) for text in manifest.revisions.values())
    yield from (("training data", one.name) for one in manifest.training or ())
    for name in ("contact", "hardware", "passages"):
        if (text := getattr(manifest, name)) is not None:
            yield name, text
    if manifest.prompts:  # somebody's own environment may have none
        yield "prompts", manifest.prompts


def _possible(when: Any) -> bool:
    """Whether a time may be shown and reckoned with; 0 and what is no number tell none."""
    number = isinstance(when, int | float) and not isinstance(when, bool)
    return not number or when == 0 or EARLIEST <= when <= LATEST


def shallow(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested at most so deep."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(shallow(one, levels - 1) for one in inner)
