"""Recompute every number of a submission from its conversations.

What the server does on arrival is exactly this; anybody can do it before. It shows that the numbers
follow from the conversations. It cannot show which model wrote them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from leaderboard.answers_in_prompts import check_prompts
from leaderboard.archive import LIMITS, Archive, Limits
from leaderboard.examine import Examination, Examiner
from leaderboard.findings import Check, Findings, Status, status_of
from leaderboard.manifest import MANIFEST, Manifest, Score, decode_manifest
from leaderboard.passages import digest_of
from leaderboard.processes import examined
from leaderboard.replay import embedded_corpus
from leaderboard.tally import Tally

PASSAGES = "passages unchecked"


class Verification(NamedTuple):
    """What `verify` found. The numbers are ours; they are empty where none could be computed.

    `curve` is pass@1 … pass@k and `by_turn` what is right had the team stopped after its nth draft,
    both in percent. `right` counts the right samples of each question, by `Questions.key`. `tokens`
    are means of an episode by agent: {"read", "written"}.
    """

    manifest: Manifest
    checks: list[Check]
    scores: dict[str, Score]
    curve: list[float]
    right: dict[str, int]
    by_turn: list[float]
    tokens: dict[str, dict[str, float]]

    @property
    def passed(self) -> bool:
        """No check failed."""
        return all(check.result != "fail" for check in self.checks)

    @property
    def status(self) -> Status:
        """What the checks come to."""
        return status_of(self.checks)[0]

    @property
    def reasons(self) -> list[str]:
        """Why it is not "recomputed"."""
        return status_of(self.checks)[1]


def verify(
    path: Path,
    data: Path | None = None,
    limits: Limits = LIMITS,
    *,
    retriever: str | None = None,
    processes: int | None = None,
) -> Verification:
    """All checks of a submission.

    `data` is a local copy of a suite that is not embedded, `retriever` the index or corpus that the
    run searched, if it is at hand. At most `processes` take part, all cores by default; the result
    does not depend on their number. Memory does not grow with the number of episodes' texts.

    Raises `BadFile` or `UserError` for input that is no submission at all or unsafe to read.
    """
    with Archive(path) as archive:
        manifest = decode_manifest(archive.read(MANIFEST), path)
        findings = Findings()
        _check_members(archive, manifest, findings)
        prompts = {name: archive.read(name) for name in archive.names if name.endswith(".toml")}
        retriever, believed = _searched(manifest, retriever)
        what = Examination(manifest, prompts, data, retriever)
        here = Examiner(what)
        _check_environment(here, findings)
        tally = Tally(manifest, here.questions, findings)
        for one in examined(_wanted(archive.lines(limits), tally), what, here, processes):
            tally.add(one)
    scores = tally.check(here.computed, believed)
    if not here.problem:  # which also bounds what it takes to read them
        check_prompts(manifest, prompts, here.questions, findings)
    _check_training(manifest, findings)
    numbers = bool(scores)
    return Verification(
        manifest=manifest,
        checks=findings.checks(),
        scores=scores,
        curve=tally.curve() if numbers else [],
        right=tally.right_by_question(),
        by_turn=tally.by_turn() if numbers else [],
        tokens=tally.tokens(),
    )


def _wanted(lines: Iterable[bytes], tally: Tally) -> Iterator[bytes]:
    """The lines, until there are more than there can be samples."""
    manifest = tally.manifest
    most = manifest.suite.rows * manifest.k
    lines = iter(lines)
    yield from itertools.islice(lines, most)
    if next(lines, None) is not None:
        problem = f"more than {manifest.suite.rows} × {manifest.k} episodes"
        tally.findings.add("samples", problem)


def _check_members(archive: Archive, manifest: Manifest, findings: Findings) -> None:
    there = set(archive.names) - {MANIFEST}
    if there != set(manifest.members):
        findings.add("members", f"declared {sorted(manifest.members)}, found {sorted(there)}")
    for name in sorted(there & set(manifest.members)):
        sha256, size = archive.digest(name)
        if (sha256, size) != (manifest.members[name].sha256, manifest.members[name].bytes):
            findings.add("members", f"{name} is not the file that was packed ({sha256[:12]}…)")


def _searched(manifest: Manifest, retriever: str | None) -> tuple[str | None, str]:
    """The retriever to search again with, if it has the declared passages; else why it has not."""
    if embedded_corpus(manifest):
        return None, ""
    kwargs = manifest.env["kwargs"]
    name = f"{PASSAGES} (retriever {kwargs['retriever']!r:.80})"
    if retriever is None:
        return None, name
    if manifest.passages is None:
        return None, f"{name}: the run did not record which they are"
    found = digest_of(retriever)
    if found != manifest.passages:
        return None, f"{name}: {retriever} has {found}, the run searched {manifest.passages:.32}"
    return retriever, ""


def _check_environment(here: Examiner, findings: Findings) -> None:
    if here.problem:
        findings.add("settings", here.problem)
    if here.manifest.passages is not None and embedded_corpus(here.manifest):
        found = f"{here.manifest.passages:.32}, and no retriever of one's own"
        findings.add("settings", f"passages declared {found}")
    if not here.third_party:
        if here.env is not None and here.env.prompts_id != here.manifest.prompts:
            ours, theirs = here.env.prompts_id, here.manifest.prompts
            findings.add("settings", f"prompts are {ours}, declared {theirs:.80}")
        return
    name = here.manifest.env["id"]
    findings.unchecked["replay"] = f"re-graded, not replayed: {name!r:.80} is not one of ours"
    findings.unchecked["rewards"] = "they are the environment's, which is not at hand"


def _check_training(manifest: Manifest, findings: Findings) -> None:
    """What is declared of training data; self-reported, as everything about them is."""
    if manifest.training is None:
        findings.unchecked["contamination"] = "nothing is declared of training data"
        return
    looked = [one for one in manifest.training if one.touched is not None]
    touched = [f"{one.name}: {one.touched} of {manifest.suite.rows} questions"
               for one in looked if one.touched]  # fmt: skip
    named = [one.name for one in manifest.training if one.touched is None]
    if touched:
        findings.warnings["contamination"] = f"training data touch {'; '.join(touched)}"
    elif named:
        findings.unchecked["contamination"] = f"declared, not looked at: {', '.join(named)}"
    elif looked:
        rows = sum(one.rows or 0 for one in looked)
        said = f"{rows:,} declared training rows share nothing with the questions"
        findings.remarks["contamination"] = f"{said} (self-reported)"
    else:
        findings.remarks["contamination"] = "declared: trained on nothing (self-reported)"
