"""How the Dr. MAS reference reads what agents write: `compat="drmas"` of math-v0 and search-v0.

Who is asked, verdicts, invalid actions, queries, what is scored and what agents can be shown follow
the reference (github.com/langfengQ/DrMAS at 19c632bc); each difference from our stricter default is
a row of `tests/mas_envs/drmas_cases.py`.

What differs from the reference on purpose:

- Its prompts are not ours to ship. `prompts: FILE` loads a set; the observations can be the same
  byte for byte (`tests/mas_envs/test_drmas.py` shows how). One exception: the reference's search
  team never sees a literal "{memory}" in what it is shown.
- Whether two answers are equal is judged by our graders: formulas with the preset "drmas", which
  says what differs, short answers with the normaliser "squad", which is the reference's.
- A retriever that fails makes a failed episode; there its error message is shown to the agents.
- An observation is never cut; there the middle of a prompt over its limit is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mas_envs.parsing import MISSING, Parsed, Parser, answer

_CJK = re.compile("[\u4e00-\u9fff]")


def block(name: str, text: str) -> str | None:
    """What stands between the first `<name>` and the first `</name>`, stripped, case-sensitive.

    "" when the closing tag comes first, None when one of them is missing.
    """
    start, end = text.find(f"<{name}>"), text.find(f"</{name}>")
    if start < 0 or end < 0:
        return None
    return text[start + len(name) + 2 : end].strip()


def tagged(name: str, think: bool) -> Parser:
    """Valid: both tags present, no CJK ideograph anywhere, and if `think` exactly one pair of
    think tags in order. The value is the block between the tags.
    """

    def parse(text: str) -> Parsed:
        inner = block(name, text)
        if inner is None or _CJK.search(text) or (think and not _one_thought(text)):
            return MISSING
        return Parsed(inner, "ok")

    return parse


def _one_thought(text: str) -> bool:
    counts = (text.count("<think>"), text.count("</think>"))
    return counts == (1, 1) and text.find("<think>") < text.find("</think>")


def boxed(text: str) -> Parsed:
    r"""Valid: the last `\boxed{` closes. An empty box is valid; one before it does not help."""
    start = text.rfind("\\boxed")
    if start < 0 or not text.startswith("{", start + 6):
        return MISSING
    depth = 0
    for place in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return Parsed(text[start + 7 : place], "ok")
    return MISSING


def review(text: str) -> str:
    """A verifier's text as its team reads it, thinking and all: the first verdict is stripped.

    Where the closing tag comes first, all that stands from it to the opening one appears twice.
    """
    inner = block("verify", text)
    if inner is None:
        return text
    start, end = text.find("<verify>") + len("<verify>"), text.find("</verify>")
    return text[:start] + inner + text[end:]


def approves(text: str) -> bool:
    """The math verdict: anything but a plain reject without an approve is an approval."""
    shown = review(text)
    return "<verify>approve</verify>" in shown or "<verify>reject</verify>" not in shown


def suffices(text: str) -> bool:
    """The search verdict: anything but a plain no without a yes means "sufficient"."""
    shown = review(text).lower()
    return "<verify>yes</verify>" in shown or "<verify>no</verify>" not in shown


def scored(text: str) -> str:
    r"""What is scored of a draft: the box in the text between the first `</think>` and the next.

    A lone backslash at its end is dropped, as the reference's comparison drops it: before our brace
    it would escape it.
    """
    found = boxed(text.split("</think>")[1] if "</think>" in text else text)
    if found.status != "ok":
        return ""
    slashes = len(found.value) - len(found.value.rstrip("\\"))
    return f"\\boxed{{{found.value[:-1] if slashes % 2 else found.value}}}"


def last_answer(history: Iterable[str]) -> str | None:
    """The last `<answer>` block of a whole history, retrieved text included."""
    text = "".join(history)
    found, end = None, 0
    while (inner := _first_block("answer", text, end)) is not None:
        end = inner.stop + len("</answer>")
        found = text[inner].strip()
    return found


def verbatim(value: str) -> str:
    """An answer so that `grade_qa` takes all of it: where it would read tags in it, none is left.

    The reference compares without punctuation, hence without the brackets, too.
    """
    same = answer(f"<answer>{value}</answer>").value == value
    return value if same else value.replace("<", "").replace(">", "")


def information(passages: Iterable[Mapping[str, Any]]) -> str:
    """Passages as the reference's search tool shows them, JSON and all."""
    shown = "".join(
        f"Doc {rank}: {_contents(passage)}\n" for rank, passage in enumerate(passages, 1)
    )
    return f"\n<information>{json.dumps({'result': shown})}</information>\n"


def _contents(passage: Mapping[str, Any]) -> str:
    """wiki-18's `contents`: the quoted title, then the text."""
    title = passage["title"]
    return f'"{title}"\n{passage["text"]}'.strip() if title else str(passage["text"]).strip()


def single_action(text: str) -> tuple[str, bool]:
    """The one agent's action and whether it is valid.

    Cut after the first `</search>` (or else `</answer>`); then the first search block, or else the
    first answer block, or nothing. Valid with exactly one kind of opening tag, exactly once.
    """
    cut = text
    for end in ("</search>", "</answer>"):
        if end in text:
            cut = text.split(end, 1)[0] + end
            break
    action = ""
    for name in ("search", "answer"):
        inner = _first_block(name, cut, flags=re.IGNORECASE)
        if inner is not None:
            action = f"<{name}>{cut[inner].strip()}</{name}>"
            break
    opened = [len(re.findall(f"<{name}>", text, re.IGNORECASE)) for name in ("search", "answer")]
    return action, bool(action) and sorted(opened) == [0, 1]


def query(action: str) -> str | None:
    """What an action searches for, stripped: its first search block; "" is searched for, too."""
    inner = _first_block("search", action)
    return None if inner is None else action[inner].strip()


def _first_block(name: str, text: str, start: int = 0, flags: int = 0) -> slice | None:
    """Where the content of the first `<name>…</name>` stands; in linear time, as no `.*?` is."""
    opened = re.compile(f"<{name}>", flags).search(text, start)
    closed = opened and re.compile(f"</{name}>", flags).search(text, opened.end())
    return slice(opened.end(), closed.start()) if opened and closed else None
