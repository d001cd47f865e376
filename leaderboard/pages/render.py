"""Pages as HTML text, the same for the server and the static site.

A place is the path of a page below the site's root: "", "math/", "submission/ID/". All links are
relative, so a site works below any path; the static one names `index.html`, for file://.

Whatever somebody submitted is escaped (autoescape), its control characters are named, and no page
has an inline script or style, so that `HEADERS` can forbid them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jinja2
import msgspec
from markupsafe import Markup

from benchmarks.suites import suites
from leaderboard.pages import plots, text
from leaderboard.pages.board import MEAN, TRACKS, Board, track_of
from leaderboard.pages.comparing import Comparison
from leaderboard.pages.facts import model_names, parameters, said, session, settings
from leaderboard.pages.reader import ReaderPage, first_line
from leaderboard.pages.reported import reported
from mas_envs.errors import UserError

if TYPE_CHECKING:
    from leaderboard.record import Record

CSP = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": f"{CSP}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
STATIC = ("style.css", "page.js")
_ID = re.compile(r"[0-9a-f]{16}")


def submission_place(record_id: str) -> str:
    """Raises `UserError` for anything that is no id, before it gets into a path."""
    if not _ID.fullmatch(record_id):
        raise UserError(f"{record_id!r:.40} is no submission's id; it has 16 hexadecimal digits")
    return f"submission/{record_id}/"


def reader_place(record_id: str, number: int) -> str:
    """A page of a submission's conversations; the first is 1."""
    return f"{submission_place(record_id)}conversations/{number}/"


def compare_place(one: str, other: str) -> str:
    """The page that compares two submissions, whichever comes first."""
    a, b = sorted(submission_place(each).removeprefix("submission/") for each in (one, other))
    return f"compare/{a}{b}"


def link(here: str, target: str, static: bool) -> str:
    """A relative URL from the page at `here` to a place or a file."""
    path = posixpath.relpath("/" + target, "/" + here)
    if target and not target.endswith("/"):
        return path
    return f"{path}/index.html" if static else f"{path}/"


class Other(msgspec.Struct, frozen=True):
    """A submission as a list names it."""

    id: str
    system: str
    team: str
    suite: str
    status: str
    received: float


def other(record: Record) -> Other:
    """What a list says of a submission."""
    about = record.manifest
    return Other(record.id, about.system, about.team, about.suite.name, record.status,
                 record.received)  # fmt: skip


class Pages:
    """All pages of a site. `static` ones name files and carry their security policy themselves.

    >>> pages = Pages(static=True)
    >>> html = pages.board(board(records, "math"))
    """

    def __init__(self, static: bool = False) -> None:
        self.static = static
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("leaderboard.pages"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=text.shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "day": text.day, "signed": text.signed, "p": text.p_text, "ranks": text.ranks,
            "line": first_line, "short": text.short,
        }  # fmt: skip
        self._templates.globals |= {
            "tracks": TRACKS, "suites": suites(), "mean": MEAN, "csp": CSP if static else "",
            "submission_place": submission_place, "reader_place": reader_place,
            "compare_place": compare_place,
        }  # fmt: skip

    def home(self, boards: Sequence[Board], records: Sequence[Record]) -> str:
        """The first page: the tables there are and what came last."""
        latest = sorted(_public(records), key=lambda one: (-one.received, one.id))[:10]
        return self._page("home.html", "", boards=boards, latest=latest)

    def board(self, board: Board, comparable: Sequence[str] | None = None) -> str:
        """A track's table. `comparable`: the submissions that have pages comparing them; all where
        it is None.
        """
        rows = [row for row in reported() if row.track == board.track]
        named = {name for row in rows for name in (*row.avg, *row.passed)}
        return self._page(
            "board.html",
            f"{board.track}/",
            board=board,
            reported=rows,
            reported_columns=[name for name in (MEAN, *suites()) if name in named],
            comparable=None if comparable is None else set(comparable),
        )

    def submission(
        self, record: Record, others: Sequence[Other] = (), conversations: bool = True
    ) -> str:
        """One submission; `others` are those of its suite that it can be compared with."""
        about = record.manifest
        curve = {f"{about.system}": record.curve} if record.curve else {}
        drawn = {
            "pass@k": plots.pass_curve(curve) if curve else "",
            "by turn": plots.accuracy_by_turn({about.system: record.by_turn})
            if record.by_turn
            else "",
            "tokens": plots.tokens_by_agent(record.tokens) if record.tokens else "",
        }
        return self._page(
            "submission.html",
            submission_place(record.id),
            record=record,
            track=track_of(about.suite.name),
            models=model_names(record),
            parameters=parameters(record),
            settings=settings(record),
            policies={role: said(list(of.items())) for role, of in about.policies.items()},
            sessions=[session(one) for one in about.sessions],
            plots={name: Markup(svg) for name, svg in drawn.items() if svg},  # escaped by plots
            others=[one for one in others if one.id != record.id],
            conversations=conversations,
            json_place=f"api/submissions/{record.id}{'.json' if self.static else ''}",
        )

    def pending(self, about: Other) -> str:
        """A submission that waits, or was rejected: nothing of it is public but its names."""
        return self._page("pending.html", submission_place(about.id), about=about)

    def conversations(self, record: Record, page: ReaderPage) -> str:
        """A page of conversations."""
        return self._page("conversations.html", reader_place(record.id, page.number),
                          record=record, page=page)  # fmt: skip

    def compare(self, a: Record, b: Record, comparison: Comparison) -> str:
        """Two submissions of one suite, B against A."""
        curves = {f"{name}: {one.manifest.system}": one.curve
                  for name, one in (("A", a), ("B", b)) if one.curve}  # fmt: skip
        return self._page("compare.html", compare_place(a.id, b.id), a=a, b=b, found=comparison,
                          curve=Markup(plots.pass_curve(curves)) if curves else "")  # fmt: skip

    def submit(
        self, upload: str | None = None, most: int = 0, problem: str = "", same: str = ""
    ) -> str:
        """How to submit; with a form that posts to the place `upload` where there is a server that
        takes `most` bytes, and with what was wrong the last time: `same` is the submission that
        was here already.
        """
        return self._page("submit.html", "submit/", upload=upload, most=most, problem=problem,
                          same=same)  # fmt: skip

    def problem(self, title: str, detail: str, path: str = "") -> str:
        """What went wrong at a URL path below the site's root, for the server."""
        here = path.lstrip("/").rpartition("/")[0]
        return self._page("problem.html", here and f"{here}/", title=title, detail=detail)

    def _page(self, template: str, here: str, **context: Any) -> str:
        url = partial(link, here, static=self.static)
        return self._templates.get_template(template).render(url=url, here=here, **context)


def _public(records: Sequence[Record]) -> list[Record]:
    return [one for one in records if one.status in ("recomputed", "self-reported")]
