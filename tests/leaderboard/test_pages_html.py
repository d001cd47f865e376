"""Pages hold what was submitted as text only, whatever it is; and nothing that was withheld."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderboard.findings import Check
from leaderboard.pages import plots
from leaderboard.pages.board import board
from leaderboard.pages.comparing import compare
from leaderboard.pages.reader import PER_PAGE, QUOTED, WITHHELD, reader_pages, redistributable
from leaderboard.pages.render import (
    Pages,
    compare_place,
    link,
    other,
    reader_place,
    submission_place,
)
from leaderboard.pages.text import visible
from mas_envs.episodes.schema import Episode, Grade, Message, ToolResult, Turn
from mas_envs.errors import UserError
from tests.leaderboard.made_up_records import many, record

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)",
    "</title></textarea></style><b>",
    "{{ 7 * 7 }}{% raw %}",
    "line\u2028and\u2029paragraph",
    "gnp.\u202eexe",
    "\u2066isolated\u2069 \u200f \u061c",
    "nul\x00 bell\x07 escape\x1b[31m c1\x9b",
    "\ud800 lone",
    "tags \U000e0041 and \ufeff",
    "&lt;b&gt; &amp;",
    "]]><!-- -->",
    "a" * 5000,
]
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


class Parsed(HTMLParser):
    """Tags, attributes and text, as a browser would take them."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.ids = [], [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_data(self, content):
        self.text += content


def hostile_record(text, **more):
    one = record(
        text,
        f"team {text}",
        checks=[Check("samples", "warning", text)],
        warnings=[text],
        reasons=[text],
        tokens={text: {"read": 1.0}},
        status="self-reported",
        **more,
    )
    about = one.manifest
    one.manifest = type(about)(
        **{name: getattr(about, name) for name in about.__struct_fields__}
        | {
            "env": {"id": text, "kwargs": {text: text}},
            "prompts": text,
            "models": {text: [text]},
            "policies": {text: {text: text}},
            "sessions": [{text: text}],
        }
    )
    return one


def episode(
    task=0,
    sample=0,
    text="I say 4.",
    question="What is two and two, all told, in numbers?",
    gold="4",
    **more,
):
    prompt = (Message("system", "You solve."), Message("user", f"Problem: {question}"))
    turn = Turn(
        index=0,
        batch=0,
        agent="solver_0",
        role="solver",
        messages=prompt,
        text=text,
        value="4",
        model="m",
    )
    grade = ToolResult(
        index=1,
        batch=1,
        tool="grade",
        args={"answer": "4", "gold": gold},
        result={"correct": True, "status": "ok", "answer": "4"},
    )
    return Episode(
        env={"id": "math-v0"},
        prompts="default",
        task=f"task{task}",
        question=question,
        gold=gold,
        group=task,
        sample=sample,
        events=[turn, grade],
        reward=1.0,
        grade=Grade(correct=True, answer="4", reason=f"equal to {gold}"),
        **more,
    )


def all_pages(records, conversations=None):
    pages = Pages(static=True)
    a, b = records[:2]
    yield pages.home([board(records, "math"), board(records, "search")], records)
    yield pages.board(board(records, "math"))
    yield from (pages.submission(one, [other(each) for each in records]) for one in records)
    yield from (pages.pending(other(one)) for one in records)
    yield pages.compare(a, b, compare(a, b))
    yield pages.submit(upload="api/upload", problem=a.manifest.system, same=a.id)
    yield pages.problem(a.manifest.system, a.manifest.team, "/no/such/page")
    for page in conversations or ():
        yield pages.conversations(a, page)


@pytest.mark.parametrize(
    "text", [*HOSTILE[::2], *(pytest.param(one, marks=pytest.mark.slow) for one in HOSTILE[1::2])]
)
def test_hostile_text_stays_text(text):
    records = [hostile_record(text, suite="math500", received=float(n)) for n in (1, 2)]
    told = [episode(text=text, question=text, gold=text, info={text: text})]
    plain_records = [
        record("x", "y", "math500", status="self-reported", received=float(n)) for n in (1, 2)
    ]
    plain = [episode(text="x", question="x", gold="x")]
    made = list(all_pages(records, reader_pages(records[0], told)))
    usual = list(all_pages(plain_records, reader_pages(plain_records[0], plain)))
    known = {tag for page in usual for tag in Parsed(page).tags} | {
        "bdi",
        "dl",
        "dt",
        "dd",
        "div",
        "ul",
        "li",
    }
    for page in made:
        seen = Parsed(page)
        assert set(seen.tags) <= known
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
        assert seen.tags.count("script") == 1
        assert not FORBIDDEN.search(page)
        page.encode("utf-8")
    if len(text) < 100:
        assert visible(text) in Parsed(made[1]).text


@given(st.text())
def test_visible_text_has_no_hidden_characters_and_loses_none(text):
    said = visible(text)
    assert not FORBIDDEN.search(said)
    if not FORBIDDEN.search(text) and "\r" not in text:
        assert visible(said) == said


@settings(max_examples=50)
@given(st.text(max_size=30), st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_plots_are_xml_whatever_the_names(name, curve):
    for svg in (
        plots.pass_curve({name: curve, f"{name} again": curve}),
        plots.accuracy_by_turn({name: curve}),
        plots.tokens_by_agent({name: {"read": curve[0]}}),
    ):
        root = ElementTree.fromstring(re.sub("[\ufffe\uffff]", "?", svg))
        assert root.get("role") == "img"
        title, desc, *_ = root
        assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
        assert "style" not in svg and "nan" not in svg


def test_a_curve_is_drawn_where_its_numbers_are():
    root = ElementTree.fromstring(plots.pass_curve({"a": [0.0, 50.0, 60.0, 100.0]}))
    dots = [(float(one.get("cx")), float(one.get("cy"))) for one in root.iter("circle")]
    top, bottom = plots.TOP, plots.HEIGHT - plots.BOTTOM
    assert [y for _, y in dots] == pytest.approx(
        [bottom, (top + bottom) / 2, bottom - 0.6 * (bottom - top), top], abs=0.06
    )
    left, right = plots.LEFT + 8, plots.WIDTH - plots.RIGHT - 8
    assert [dots[0][0], dots[1][0], dots[3][0]] == pytest.approx(
        [left, (left + right) / 2, right], abs=0.06
    )
    assert "a: 0.0 at 1, 50.0 at 2, 60.0 at 3, 100.0 at 4" in root[1].text


def test_empty_plots_do_not_fail():
    for svg in (
        plots.pass_curve({}),
        plots.accuracy_by_turn({"a": [3.0]}),
        plots.tokens_by_agent({}),
    ):
        ElementTree.fromstring(svg)


# ---- tables ------------------------------------------------------------------------------------


def test_every_table_has_a_caption_scoped_headers_and_one_sorted_column():
    records = many(4, ("aime24",))
    for page in all_pages(records):
        assert page.count("<table") == page.count("<caption")
        assert not re.search(r"<th(?![^>]*scope=)[ >]", page.replace("<thead", ""))
        seen = Parsed(page)
        assert len(set(seen.ids)) == len(seen.ids)
    table = Pages().board(board(records, "math"))
    assert re.findall(r'aria-sort="(\w+)"', table) == ["ascending"]


def test_the_board_says_what_was_computed():
    records = many(3)
    table = board(records, "math")
    text = " ".join(Parsed(Pages().board(table)).text.split())
    best = table.rows[0].cells["aime24"]
    assert f"{best.avg.value:.1f} {best.avg.low:.1f}–{best.avg.high:.1f}" in text
    assert f"pass@16 {best.passed.value:.1f} {best.passed.low:.1f}–{best.passed.high:.1f}" in text
    assert "does not prove which model wrote the text" in text


@pytest.mark.parametrize("status", ["self-reported", "recomputed"])
def test_a_submission_says_its_status_and_why(status):
    one = record(status=status, reasons=["sample 3 is missing"])
    text = Parsed(Pages().submission(one)).text
    assert status in text
    assert ("sample 3 is missing" in text) == (status == "self-reported")


@pytest.mark.parametrize("status", ["waiting", "rejected"])
def test_what_is_not_accepted_says_so_and_nothing_else(status):
    one = record(status=status, reasons=["the gold was edited-19"])
    page = Pages().pending(other(one))
    assert status in Parsed(page).text and one.id in page and "edited-19" not in page


# ---- links -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", ["", "../../etc", "0123456789abcdeg", "0123456789abcdef\n", "0123456789ABCDEF"]
)
def test_an_id_that_is_none_gets_into_no_path(bad):
    with pytest.raises(UserError, match="16 hexadecimal digits"):
        submission_place(bad)


def test_links_lead_from_every_depth_to_the_same_place():
    from urllib.parse import urljoin

    for here in ("", "math/", "submission/0123456789abcdef/conversations/2/"):
        for target in ("", "math/", "static/style.css", reader_place("0" * 16, 1)):
            for static in (False, True):
                end = "index.html" if static and (not target or target.endswith("/")) else ""
                base = f"https://host/board/{here}" + ("index.html" if static else "")
                assert (
                    urljoin(base, link(here, target, static)) == f"https://host/board/{target}{end}"
                )
    assert compare_place("b" * 16, "a" * 16) == f"compare/{'a' * 16}/{'b' * 16}/"


def test_static_pages_forbid_inline_scripts_themselves():
    policy = 'http-equiv="Content-Security-Policy"'
    assert policy in Pages(static=True).submit() and policy not in Pages().submit()
    assert "unsafe-inline" not in html.unescape(Pages(static=True).submit())


# ---- conversations -----------------------------------------------------------------------------


def test_licences():
    free = ["math500", "nq", "hotpotqa", "2wiki", "musique", "bamboogle", "arith", "tinyworld"]
    withheld = [
        "aime24",
        "aime25",
        "amc23",
        "minerva",
        "olympiadbench",
        "triviaqa",
        "popqa",
        "a suite of mine",
    ]
    assert all(map(redistributable, free)) and not any(map(redistributable, withheld))


def test_free_suites_show_question_gold_prompts_and_grade():
    one = record(suite="math500", questions=3, k=1)
    (page,) = reader_pages(one, [episode(text="It is four.")])
    text = Parsed(Pages().conversations(one, page)).text
    for wanted in ("What is two and two", "It is four.", "right", "equal to 4", "You solve."):
        assert wanted in text


def test_withheld_suites_show_neither_problem_nor_gold_nor_outcome():
    question = "Let N be the number of zebras that fit into a train of 12 wagons, then find N."
    quoting = f"First, I repeat: {question} Then, the number of zebras that fit into a train: 7319?"
    told = episode(
        text=quoting,
        question=question,
        gold="4711",
        meta={"note": "a hint: 4711"},
        info={"gold": "4711"},
    )
    told.events.insert(
        1,
        ToolResult(
            index=9,
            batch=9,
            tool="search",
            args={"query": question},
            result=[{"title": "t", "text": f"x {question.upper()} y"}],
        ),
    )
    one = record(suite="aime24")
    (page,) = reader_pages(one, [told])
    content = Pages().conversations(one, page)
    import msgspec

    for shown in (content, msgspec.json.encode(page).decode()):
        assert "4711" not in shown and "task0" not in shown
        words = [word.casefold() for word in re.findall(r"\w+", question)]
        there = " ".join(re.findall(r"\w+", shown)).casefold()
        for start in range(len(words) - QUOTED + 1):
            assert " ".join(words[start : start + QUOTED]) not in there
    text = Parsed(content).text
    assert WITHHELD in text and "7319" in text and "First, I repeat:" in text
    assert not page.conversations[0].outcome and "equal to" not in text


def test_a_short_problem_is_withheld_as_a_whole():
    one = record(suite="aime24")
    (page,) = reader_pages(
        one, [episode(text="So 3+4, that is 3 + 4, no more.", question="3 + 4 =", gold="7")]
    )
    assert page.conversations[0].events[0]["text"] == f"So {WITHHELD}, that is {WITHHELD}, no more."


def test_the_order_of_withheld_conversations_tells_nothing_of_their_samples():
    told = [
        episode(
            task,
            sample,
            question=f"Which number is it, said the {task}th?",
            text=f"{task} {sample}",
        )
        for task in range(6)
        for sample in range(4)
    ]
    one = record(suite="aime24")
    shown = [
        each.events[0]["text"] for page in reader_pages(one, told) for each in page.conversations
    ]
    again = [
        each.events[0]["text"]
        for page in reader_pages(one, told[::-1])
        for each in page.conversations
    ]
    assert shown == again and sorted(shown) == [f"{t} {s}" for t in range(6) for s in range(4)]
    assert shown != sorted(shown)


@given(count=st.integers(0, 45), limit=st.one_of(st.none(), st.integers(1, 50)))
@settings(max_examples=30, deadline=None)
def test_pages_hold_every_conversation_once(count, limit):
    told = [episode(n // 4, n % 4, text=f"no. {n}") for n in range(count)]
    one = record(suite="math500", questions=20, k=1)
    pages = list(reader_pages(one, told[::-1], limit))
    texts = [each.events[0]["text"] for page in pages for each in page.conversations]
    kept = count if limit is None else min(count, limit)
    assert texts == [f"no. {n}" for n in range(kept)]
    assert [page.number for page in pages] == list(range(1, -(-kept // PER_PAGE) + 1))
    assert all(page.pages == len(pages) for page in pages)
