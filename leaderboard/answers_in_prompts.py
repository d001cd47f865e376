"""Prompts that hold what is asked: an agent that is shown the answers shows nothing.

What is looked for is the suite's questions, and its golds as a list. Whoever wants to hide them (in
another alphabet, by their first words) can; this finds what is written down plainly. Questions that
are not the suite's, as examples, are nobody's concern.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.suites.contamination import PHRASE, SHORTEST
from benchmarks.suites.words import words
from leaderboard.environment import has_many_dots
from leaderboard.findings import Findings
from leaderboard.manifest import Manifest
from leaderboard.questions import Questions
from mas_envs.tasks import Task

SOME = 3  # questions that are shorter than SHORTEST words; fewer are a chance
LONGEST = 16  # words or signs of a short question or a gold; the time is so many times the text
PART = 0.05  # of all questions, held in part
GOLDS, GOLD = (
    10,
    2,
)  # different golds, and letters of one, from which a list of them tells something
_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")


def check_prompts(
    manifest: Manifest, prompts: Mapping[str, bytes], questions: Questions, findings: Findings
) -> None:
    """Hold the prompts' files, and all texts among the environment's arguments, against the suite.

    A file that is no TOML, or costly to read, is taken as it stands.
    """
    texts = list(_texts([manifest.env.get("kwargs"), *map(_tables, prompts.values())]))
    tasks = [task for _, task in questions.tasks.values()]
    if found := questions_in(tasks, texts):
        held = f"the prompts contain {found} questions of {manifest.suite.name}"
        findings.add("settings", held)
    elif found := golds_in(tasks, texts):
        held = f"the prompts contain {found} of the answers of {manifest.suite.name}"
        findings.add("settings", held)


def questions_in(tasks: Iterable[Task], texts: Sequence[str]) -> int:
    """How many of the questions the texts hold; 0 where it may be chance.

    A question of at least `SHORTEST` words counts as a whole, or by so many of its words in a row
    if most of its rows of words are there. One that is all there is enough. Of shorter ones
    ("2+4+4=?": sign by sign) it takes `SOME`; with those that are there in part `PART` of the suite
    as well, since examples of the same kind share words with questions. What stands in `PHRASE`
    questions says nothing.
    """
    windows: dict[str, set[int]] = {}
    parts: dict[int, int] = {}  # how many windows a question has
    short: dict[str, int] = {}
    for number, task in enumerate(tasks):
        listed = words(task.question)
        if len(listed) < SHORTEST:
            tokens = _tokens(task.question.rstrip(" .?!:"))
            if 0 < len(tokens) <= LONGEST:
                short[" ".join(tokens)] = number
            continue
        grams = set(_grams(listed, SHORTEST))
        parts[number] = len(grams)
        for gram in grams:
            windows.setdefault(gram, set()).add(number)
    there: dict[int, int] = {}
    telling = set[int]()
    for gram in _present(windows, {SHORTEST}, map(words, texts)):
        telling |= windows[gram] if len(windows[gram]) < PHRASE else set()
        for number in windows[gram]:
            there[number] = there.get(number, 0) + 1
    held = {number for number in telling if 2 * there[number] > parts[number]}
    wholes = {number for number in held if there[number] == parts[number]}
    lengths = {key.count(" ") + 1 for key in short}
    brief = {short[key] for key in _present(short, lengths, map(_tokens, texts))}
    found = held | brief
    in_parts = len(found) >= max(SOME, PART * (len(parts) + len(short)))
    return len(found) if wholes or len(brief) >= SOME or in_parts else 0


def golds_in(tasks: Iterable[Task], texts: Sequence[str]) -> int:
    """How many different golds the texts hold; 0 for less than half of them, or less than `GOLDS`.

    Golds of fewer than `GOLD` letters or digits are not looked at.
    """
    golds = set()
    for task in tasks:
        first = task.answer if isinstance(task.answer, str) else next(iter(task.answer), "")
        listed = words(first)
        if sum(map(len, listed)) >= GOLD and len(listed) <= LONGEST:
            golds.add(" ".join(listed))
    lengths = {gold.count(" ") + 1 for gold in golds}
    found = len(_present(golds, lengths, map(words, texts)))
    return found if found >= GOLDS and 2 * found >= len(golds) else 0


def _present(
    wanted: Iterable[str], lengths: Iterable[int], texts: Iterable[Sequence[str]]
) -> set[str]:
    """Those of the wanted (words with a space between) that stand in a row in a text."""
    wanted, found = set(wanted), set[str]()
    for listed in texts:
        for length in lengths:
            found.update(wanted.intersection(_grams(listed, length)))
    return found


def _grams(listed: Sequence[str], length: int) -> Iterator[str]:
    for start in range(len(listed) - length + 1):
        yield " ".join(listed[start : start + length])


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def _tables(content: bytes) -> Any:
    if not has_many_dots(content):
        with contextlib.suppress(ValueError, RecursionError):
            return tomllib.loads(content.decode())
    return content.decode(errors="replace")


def _texts(value: Any) -> Iterator[str]:
    """All texts in JSON values, keys, too; however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
