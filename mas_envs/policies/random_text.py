"""Random text of the kinds models write: a baseline, and what environments must put up with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mas_envs.errors import UserError
from mas_envs.policies.base import Request, Response

FORMS = (r"\boxed", "<verify>", "<search>", "<answer>")
"""What an answer may stand in."""

VERDICTS: Mapping[str, Sequence[str]] = {"<verify>": ("approve", "reject")}
"""What stands in a tag where the messages do not say."""

_TAG = re.compile(r"<([a-z]\w*)>")
_HOLD_ANSWERS = (r"\boxed", "<answer>")
_WORDS = ("the", "sum", "of", "two", "numbers", "is", "so", "hence", "答案", "是", "é", "𝔸", "7")
_FOREIGN = (
    "答案是 7。", "\u202e 7 הוא התשובה", "الجواب ٧", "\x00\x07\x1b[31m", "＜answer＞7＜/answer＞",
    "\u200b\ufeff", "{question}", "<|im_end|>", "%s", "\u0301" * 20,
)  # fmt: skip
LONGEST = 20_000  # characters of a very long text


class RandomPolicy:
    """Answers at random, as `request.seed` and the messages say (see `random_answer`).

    `malformed` is the share of answers that none of our parsers reads.
    """

    def __init__(self, malformed: float = 0.3) -> None:
        if not 0 <= malformed <= 1:
            raise UserError(f"malformed={malformed}; it is a share, from 0 to 1")
        self.malformed = malformed

    async def act(self, request: Request) -> Response:
        """One answer."""
        shown = "\n".join(message.content for message in request.messages)
        text = random_answer(np.random.default_rng(request.seed), shown, self.malformed)
        return Response(text=text, model="random")


def random_answer(rng: np.random.Generator, shown: str, malformed: float = 0.3) -> str:
    """Text as a model that was shown `shown` might write it.

    It uses the tags that stand there, and words and numbers from there, so that searches find
    something. A tag that is shown around different single words takes these: from
    "<verify>yes</verify> or <verify>no</verify>" come yes and no.
    """
    tags = [name for name in dict.fromkeys(_TAG.findall(shown)) if name != "think"]
    forms = [r"\boxed"] * (r"\boxed" in shown) + [f"<{name}>" for name in tags]
    choices = dict(VERDICTS)
    for name in tags:
        examples = dict.fromkeys(re.findall(rf"<{name}>(\w+)</{name}>", shown))
        if len(examples) > 1:
            choices[f"<{name}>"] = tuple(examples)
    words = re.findall(r"\w+", shown)
    return random_action(rng, words or _WORDS, forms or FORMS, choices, malformed)


def random_action(
    rng: np.random.Generator,
    words: Sequence[str] = _WORDS,
    forms: Sequence[str] = FORMS,
    choices: Mapping[str, Sequence[str]] = VERDICTS,
    malformed: float = 0.3,
) -> str:
    """Text of the kinds models write, from some of `words`, in some of `forms` (see `FORMS`).

    A form of `choices` holds one of these. A share `malformed` is not read by any parser: cut
    off, contradictory, empty, foreign.
    """
    said = _Said(words, forms, choices)
    if rng.random() < malformed:
        return str(_pick(rng, _MALFORMED)(rng, said))
    text = _part(rng, said)
    if rng.random() < 0.2:  # the last one counts; a verdict may only be repeated
        text = f"{text} {_phrase(rng, words)} {text}"
    if rng.random() < 0.2:
        text = _part(rng, said._replace(forms=_HOLD_ANSWERS)) + f"\n{text}"
    before, after = _prose(rng, words), _prose(rng, words)
    if rng.random() < 0.3:
        before = f"<think>{before} {_pick(rng, _MALFORMED)(rng, said)}</think>"
    return f"{before}{text}{after}"


class _Said(NamedTuple):
    """What may be said, and in which forms."""

    words: Sequence[str]
    forms: Sequence[str]
    choices: Mapping[str, Sequence[str]]


def _pick(rng: np.random.Generator, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _phrase(rng: np.random.Generator, words: Sequence[str]) -> str:
    """One to six words that stand beside each other, as a search query would take them."""
    start = int(rng.integers(len(words)))
    return " ".join(words[start : start + int(rng.integers(1, 7))])


def _value(rng: np.random.Generator, words: Sequence[str]) -> str:
    kind = rng.random()
    if kind < 0.4:
        return str(rng.integers(0, 30))
    numbers = [word for word in words if word.isdecimal()]
    return str(_pick(rng, numbers)) if kind < 0.7 and numbers else _phrase(rng, words)


def _prose(rng: np.random.Generator, words: Sequence[str]) -> str:
    """Text without tags: mostly short, often none, sometimes foreign, rarely very long."""
    kind = rng.random()
    if kind < 0.3:
        return ""
    if kind < 0.45:
        return str(_pick(rng, _FOREIGN))
    text = " ".join(_phrase(rng, words) for _ in range(int(rng.integers(1, 6)))) + "\n"
    return (text * (LONGEST // len(text) + 1))[:LONGEST] if kind > 0.98 else text


def _part(rng: np.random.Generator, said: _Said, nest: bool = True) -> str:
    r"""One complete `\boxed{}` or tag, in any case; `nest` lets it hold another one."""
    form = str(_pick(rng, said.forms))
    if form in said.choices:
        value = str(_pick(rng, said.choices[form]))
        value = str(_pick(rng, (value, value, value.title(), f" {value.upper()}\n")))
    elif nest and rng.random() < 0.1:
        value = _part(rng, said._replace(forms=_HOLD_ANSWERS), nest=False)
    else:
        value = _phrase(rng, said.words) if form == "<search>" else _value(rng, said.words)
    if form == r"\boxed":
        return f"{form}{{{value}}}"
    name, end = form[1:-1], str(_pick(rng, ("", "", "", " ")))
    opened, closed = (str(_pick(rng, (name, name, name.upper(), name.title()))) for _ in "oc")
    return f"<{opened}>{value}</{closed}{end}>"


# ---- what no parser reads ----------------------------------------------------------------------


def _cut(rng: np.random.Generator, said: _Said) -> str:
    part = _part(rng, said, nest=False)
    return _prose(rng, said.words) + part[: int(rng.integers(1, len(part)))]


def _contradiction(rng: np.random.Generator, said: _Said) -> str:
    return f"<verify>reject</verify>{_prose(rng, said.words)}<Verify>approve</verify>"


def _undecided(rng: np.random.Generator, said: _Said) -> str:
    return f"<verify>{_phrase(rng, said.words)}?</verify>"


def _hollow(rng: np.random.Generator, said: _Said) -> str:
    hollow = (r"\boxed{}", "<answer></answer>", "<search> \n</search>", "<verify/>", "", " \n\t")
    return str(_pick(rng, hollow))


def _unopened(rng: np.random.Generator, said: _Said) -> str:
    name = str(_pick(rng, ("verify", "search", "answer", "think")))
    return f"{_phrase(rng, said.words)}</{name}>"


def _only_thought(rng: np.random.Generator, said: _Said) -> str:
    return f"<think>{_part(rng, said)}</think>{_prose(rng, said.words)}"


def _endless_thought(rng: np.random.Generator, said: _Said) -> str:
    return f"<think>{_cut(rng, said)}"


def _untagged(rng: np.random.Generator, said: _Said) -> str:
    return _prose(rng, said.words)


_Writer = Callable[[np.random.Generator, _Said], str]
_MALFORMED: tuple[_Writer, ...] = (
    _cut, _cut, _contradiction, _undecided, _hollow, _unopened, _only_thought, _endless_thought,
    _untagged,
)  # fmt: skip
