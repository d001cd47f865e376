"""The episode: the one contract between environments, trainer, benchmarks and leaderboard.

In memory: slotted structs. On disk: JSON with arrays as base64 (see `store`). Everything that
reads an episode reads these classes; nothing is passed beside them.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mas_envs.episodes.plain import plain
from mas_envs.errors import UserError

SCHEMA_VERSION = 1

Ids = NDArray[np.int32]
LogProbs = NDArray[np.float32]

ParseStatus = Literal["ok", "missing", "ambiguous", "truncated"]
GradeStatus = Literal["ok", "no_answer", "truncated", "unparseable", "limit", "error"]
EpisodeStatus = Literal["running", "done", "failed"]


class Message(msgspec.Struct, frozen=True):
    """A chat message: role is system | user | assistant."""

    role: str
    content: str


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tokens are drawn. `max_tokens` counts response tokens; `top_k` 0 means off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        """Raises `UserError` for a value that defines no distribution."""
        t, p, k, n = self.temperature, self.top_p, self.top_k, self.max_tokens
        checks = {
            "temperature": (type(t) in (int, float) and 0 <= t < math.inf, "a number from 0 up"),
            "top_p": (type(p) in (int, float) and 0 < p <= 1, "a number in (0, 1]"),
            "top_k": (type(k) is int and k >= 0, "a whole number from 0 (off) up"),
            "max_tokens": (type(n) is int and n >= 1, "a whole number from 1 up"),
        }
        for name, (good, rule) in checks.items():
            if not good:
                given = getattr(self, name)
                raise UserError(f"sampling.{name} is {given!r:.40}; it must be {rule}")


def _written(default: Any) -> Any:
    """A default that is stored all the same: `omit_defaults` leaves out plain ones only."""
    return msgspec.field(default_factory=lambda: default)


class Grade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict on a final answer. `correct` is None only when the grader cannot decide.

    `score` is what the grader's metric gives, from 0 to 1 (`grade_qa`: EM, F1 or sub-EM); None
    where there is only right and wrong. None is not stored, so that an episode graded without a
    score has the bytes, and the hash, that it had before there were scores.
    """

    correct: bool | None
    status: GradeStatus = _written("ok")
    answer: str | None = _written(None)
    reason: str = _written("")
    grader: str = _written("")
    score: float | None = None


class Turn(msgspec.Struct, kw_only=True, tag_field="kind", tag="turn"):
    """One decision of one agent.

    `batch` numbers the yields of the workflow: turns with the same batch were asked in parallel.
    `reward` is the turn's own reward (invalid-action penalty or shaping), without the team's.
    Shapes: `prompt_ids` [P], `ids` [T], `log_probs` [T] (nats, under the sampling policy).
    """

    index: int
    batch: int
    agent: str
    role: str
    messages: tuple[Message, ...]
    text: str
    parse_status: ParseStatus = "ok"
    value: Any = None
    reward: float = 0.0
    model: str = ""
    sampling: Sampling = Sampling()
    seed: int = 0
    template: str = ""
    finish_reason: str = "stop"
    versions: tuple[tuple[int, int], ...] = ()
    prompt_tokens: int = 0
    response_tokens: int = 0
    prompt_ids: Ids | None = None
    ids: Ids | None = None
    log_probs: LogProbs | None = None
    seconds: float = 0.0


class ToolResult(msgspec.Struct, kw_only=True, tag_field="kind", tag="tool"):
    """One call of a tool and what it gave back (JSON values)."""

    index: int
    batch: int
    tool: str
    args: dict[str, Any]
    result: Any = None
    seconds: float = 0.0


Event = Turn | ToolResult


class Episode(msgspec.Struct, kw_only=True):
    """One whole conversation and what it was worth.

    `group` numbers the prompt within the batch, `sample` the repetition within the group; all
    members of a group share `seed` (the environment's). `reward` is the team's. `env` is the
    serialisable environment spec. A failed episode keeps its turns; `reward` means nothing there,
    nor while an episode is `running`.
    """

    schema: int = SCHEMA_VERSION
    env: dict[str, Any]
    prompts: str
    task: str
    question: str = ""
    gold: Any = None
    meta: dict[str, Any] = {}
    group: int = 0
    sample: int = 0
    seed: int = 0
    events: list[Event] = []
    reward: float = 0.0
    grade: Grade | None = None
    info: dict[str, Any] = {}
    status: EpisodeStatus = "done"
    reason: str = ""
    step: int = 0
    provenance: dict[str, str] = {}
    started: float = 0.0
    seconds: float = 0.0

    @property
    def turns(self) -> list[Turn]:
        """The agents' decisions, in order."""
        return [event for event in self.events if isinstance(event, Turn)]


def row_rewards(episode: Episode) -> list[float]:
    """R of every turn: the team's reward plus the turn's own (arXiv 2602.08847, section 5)."""
    return [episode.reward + turn.reward for turn in episode.turns]


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        code = {"i": "i4", "f": "f4"}.get(value.dtype.kind)
        if code is None or value.ndim != 1:
            raise TypeError(f"a {value.ndim}-d array of {value.dtype} has no place in an episode")
        stored = value.astype("<" + code)
        if code == "i4" and not np.array_equal(stored, value):
            raise TypeError("a token id does not fit into 32 bits")
        return f"{code}:{base64.b64encode(stored.tobytes()).decode()}"
    raise TypeError(f"{type(value).__name__} has no place in an episode; use JSON values")


def _decode_array(kind: type, value: Any) -> Any:
    if not isinstance(value, str) or value[:3] not in ("i4:", "f4:"):
        raise ValueError("expected an array as 'i4:<base64>' or 'f4:<base64>'")
    return np.frombuffer(base64.b64decode(value[3:], validate=True), dtype="<" + value[:2])


_encoder = msgspec.json.Encoder(enc_hook=_encode_array)
_decoder = msgspec.json.Decoder(Episode, dec_hook=_decode_array)


class _Version(msgspec.Struct):
    schema: Any = None


_version_decoder = msgspec.json.Decoder(_Version)


def _storable(event: Event) -> Event:
    """The event with its free-form fields in JSON's own types."""
    where = f"event {event.index}"
    plain(event.seconds, where)
    if isinstance(event, ToolResult):
        args, result = plain(event.args, where), plain(event.result, where)
        return msgspec.structs.replace(event, args=args, result=result)
    plain([event.reward, event.sampling.temperature, event.sampling.top_p], where)
    return msgspec.structs.replace(event, value=plain(event.value, where))


def encode(episode: Episode) -> bytes:
    """An episode as one line of JSON (no newline).

    Raises `TypeError` on what JSON would drop or change (NaN, bytes, lone surrogates …).
    """
    score = episode.grade.score if episode.grade else None
    plain([episode.reward, episode.started, episode.seconds, score], "episode")
    free = {name: plain(getattr(episode, name), name) for name in ("env", "gold", "meta", "info")}
    events = [_storable(event) for event in episode.events]
    try:
        return _encoder.encode(msgspec.structs.replace(episode, events=events, **free))
    except UnicodeEncodeError as error:
        raise TypeError(f"text with a lone surrogate has no place in an episode: {error}") from None


def decode(line: bytes | str) -> Episode:
    """The inverse of `encode`. Raises `UserError` on another schema or a malformed line."""
    try:
        version = _version_decoder.decode(line).schema
        if version != SCHEMA_VERSION:
            raise UserError(
                f"episode schema {version!r} is not {SCHEMA_VERSION}; "
                "read it with the mas-gym release that wrote it"
            )
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UserError(f"malformed episode: {error}") from None
