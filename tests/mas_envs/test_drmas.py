"""`compat="drmas"` beside the strict default (`drmas_cases`), and what holds for any text."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mas_envs
from mas_envs import drmas
from mas_envs.errors import UserError
from mas_envs.grading import grade_qa
from mas_envs.tasks import TaskSet
from mas_envs.testing import check_replay
from tests.mas_envs.drmas_cases import (
    APPROVE,
    ASK,
    FOUND,
    MATH,
    MATH_1,
    NO,
    PARIS,
    REJECT,
    RIGHT,
    ROWS,
    SEARCH,
    SEARCH_1,
    WRONG,
    YES,
    Does,
    T,
)

QUESTION = {"math": "What is 2 + 2?", "search": "What is the capital of {France}?"}
TASKS = {
    "math": TaskSet([(QUESTION["math"], "4", {})]),
    "search": TaskSet([(QUESTION["search"], ["Paris"], {})]),
}


def search_tool(batch):
    """Passages for a query: what FOUND holds, or one that helps nobody."""
    return [
        [{"id": "1", "title": "Page", "text": FOUND.get(args["query"], "Nothing."), "score": 1.0}]
        for args in batch
    ]


def make(id, **kwargs):
    kind = id.split("-")[0]
    env = mas_envs.make(id, tasks=TASKS[kind], **kwargs)
    if kind == "search":
        env.tools["search"] = search_tool
    return env


def play(env, texts):
    """The episode of these texts, repeated if there are too few."""
    env.reset(seed=0)
    said = 0
    while not env.terminations[env.agent_selection]:
        env.step(texts[said % len(texts)])
        said += 1
    return env.episode


def does(episode):
    marks = {True: "+", False: "-"}
    turns = " ".join(turn.role + marks[turn.parse_status == "ok"] for turn in episode.turns)
    verdicts = " ".join(episode.info.get("verdicts", []))
    return Does(turns, episode.reward, verdicts, tuple(episode.info.get("queries", [])))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_the_reference_does_and_what_we_do(row):
    assert does(play(make(row.env, compat="drmas"), row.texts)) == row.drmas
    assert does(play(make(row.env), row.texts)) == row.strict


PIECES = [
    "<verify>", "</verify>", "approve", "reject", "yes", "no", " ", "\n", APPROVE, REJECT, YES, NO,
    "<VERIFY>No</VERIFY>", "<search>", "</search>", "<Search>", "</SEARCH>", "capital", "leak",
    "<answer>", "</answer>", "<ANSWER>", "</Answer>", "Paris", "<think>", "</think>", T, "巴黎",
    r"\boxed{", r"\boxed", r"\fbox{4}", "{", "}", "\\", RIGHT, WRONG, "4", "<",
    "{history}", "ſ", "İ",
]  # fmt: skip
texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text(max_size=40))
ENVS = {(id, mode): make(id, compat=mode) for id in (MATH, MATH_1, SEARCH, SEARCH_1)
        for mode in ("drmas", None)}  # fmt: skip


@given(st.sampled_from([MATH, MATH_1, SEARCH, SEARCH_1]), st.lists(texts, min_size=1, max_size=8))
@example(SEARCH, [NO, f"{T}<search>open</search>", NO, f"{T}<search>close</search>", NO])
def test_any_text_is_read_and_the_episode_replays(id, said):
    env = ENVS[id, "drmas"]
    episode = play(env, said)
    assert episode.status == "done"
    assert episode.reward == float(episode.grade.correct is True)
    check_replay(env, episode)


@given(texts)
def test_blocks_are_what_the_expressions_find(text):
    """The patterns that say it best, which would take quadratic time on a hostile text."""
    answers = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
    assert drmas.last_answer([text[:7], text[7:]]) == (answers[-1].strip() if answers else None)
    queries = re.findall("<search>(.*?)</search>", text, re.DOTALL)
    assert drmas.query(text) == (queries[0].strip() if queries else None)
    cut = re.match("(.*?</search>)|(.*?</answer>)|.*", text, re.DOTALL)[0]
    kinds = [re.search(f"<{kind}>(.*?)</{kind}>", cut, re.DOTALL | re.IGNORECASE)
             for kind in ("search", "answer")]  # fmt: skip
    action, valid = drmas.single_action(text)
    if kinds[0] or kinds[1]:
        kind, found = ("search", kinds[0]) if kinds[0] else ("answer", kinds[1])
        assert action == f"<{kind}>{found[1].strip()}</{kind}>"
    else:
        assert (action, valid) == ("", False)


def test_hostile_texts_are_read_in_linear_time():
    for mark in ("<answer>", "<search>", "</search>", "<verify>", "<think>", r"\boxed{", "{"):
        text = mark * 100_000
        for read in (drmas.single_action, drmas.review, drmas.boxed, drmas.scored, drmas.query,
                     drmas.tagged("answer", think=True)):  # fmt: skip
            read(text)
        assert drmas.last_answer([text, "<answer>a</answer>"]).endswith("a")


@given(texts)
def test_the_grader_takes_the_whole_answer(text):
    """No part of it that our tags would read: only an answer that is Paris all over is right."""
    value = drmas.last_answer([f"<answer>{text}</answer>"])
    words = re.sub(r"[^\w]+", "", value).casefold()
    if grade_qa(f"<answer>{drmas.verbatim(value)}</answer>", "Paris", normaliser="squad").correct:
        assert words == "paris"


def test_an_answer_may_begin_in_one_page_and_end_in_another():
    episode = play(
        make(SEARCH, compat="drmas"),
        [NO, f"{T}<search>open</search>", NO, f"{T}<search>close</search>", NO, ASK, NO],
    )
    assert episode.grade.status == "ok"
    assert episode.grade.answer.startswith("in it") and episode.grade.answer.endswith("Paris")


# ---- what agents are shown -----------------------------------------------------------------------

PROMPTS = """
name = "like-the-reference"
[solver]
system = "Be kind."
user = '''
TASK {question}
TEAM
{history}
Solve, in \\boxed{}.
'''
history = '''

"Solver" said: {draft}

"Verifier" said: {review}
'''
[verifier]
user = '''
TASK {question}
TEAM
{history}
"Solver" said: {draft}

Verify.
'''
history = '''

"Solver" said: {draft}

"Verifier" said: {review}
'''
"""
STEP = '''
intro = """
{taken} step(s) taken by the team on {question}:
"""
history = """
Step {turn}:{action} {passages}

"""
'''
SEARCH_PROMPTS = f"""
[verifier]
user = "Q {{question}}\\n{{history}}Route step {{turn}}."
{STEP}
[search]
user = "Q {{question}}\\n{{history}}TEAM at {{turn}}\\n\\nVerifier: {{remark}}\\n\\nSearch."
{STEP}
[answer]
user = "Q {{question}}\\n{{history}}Answer."
{STEP}
[searcher]
user = "Q {{question}}\\n{{history}}Go."
{STEP}
"""


def observations(path, text, id, said):
    path.write_text(text)
    return [turn.messages for turn in play(make(id, compat="drmas", prompts=str(path)), said).turns]


def test_math_observations_as_the_reference_writes_them(tmp_path):
    draft, review = (
        f"<think>a\n</think> {WRONG}",
        "<think>b</think>\n<verify> reject\n</verify>\n c ",
    )
    shown = observations(tmp_path / "p.toml", PROMPTS, MATH, [draft, review, RIGHT])
    assert [message.content for messages in shown for message in messages] == [
        "Be kind.",
        "TASK What is 2 + 2?\nTEAM\n\nSolve, in \\boxed{}.\n",
        f'TASK What is 2 + 2?\nTEAM\n\n"Solver" said: {draft}\n\nVerify.\n',
        "Be kind.",
        f'TASK What is 2 + 2?\nTEAM\n\n"Solver" said: {draft}\n\n'
        '"Verifier" said: <think>b</think>\n<verify>reject</verify>\n c \n\nSolve, in \\boxed{}.\n',
    ]


def test_search_observations_as_the_reference_writes_them(tmp_path):
    question, router = QUESTION["search"], "\nhm <verify> no </verify> {turn} "
    said = [router, f"{T}<search> leak\n</search>", router, f"{T}nothing", YES, PARIS]
    shown = observations(tmp_path / "p.toml", SEARCH_PROMPTS, SEARCH, said)
    result = json.dumps({"result": f'Doc 1: "Page"\n{FOUND["leak"]}\n'})
    one = f"Step 1:<search>leak</search> <information>{result}</information>\n\n"
    announced = "{} step(s) taken by the team on " + question.replace("{", "{{").replace("}", "}}")
    remark = "Verifier: \nhm <verify>no</verify> {turn} "
    assert [messages[0].content for messages in shown] == [
        f"Q {question}\nRoute step 1.",
        f"Q {question}\nTEAM at 1\n\n{remark}\n\nSearch.",
        f"Q {question}\n{announced.format(1)}:\n{one}Route step 2.",
        f"Q {question}\n{announced.format(1)}:\n{one}TEAM at 2\n\n{remark}\n\nSearch.",
        f"Q {question}\n{announced.format(2)}:\n{one}Step 2: \n\nRoute step 3.",
        f"Q {question}\n{announced.format(2)}:\n{one}Step 2: \n\nAnswer.",
    ]


def test_the_single_agents_observations(tmp_path):
    question = QUESTION["search"]
    said = ["<SEARCH>no such page</SEARCH> …", "?", PARIS]
    shown = observations(tmp_path / "p.toml", SEARCH_PROMPTS, SEARCH_1, said)
    result = json.dumps({"result": 'Doc 1: "Page"\nNothing.\n'})
    one = f"Step 1:<search>no such page</search> <information>{result}</information>\n\n"
    assert [messages[0].content for messages in shown] == [
        f"Q {question}\nGo.",
        f"Q {question}\n1 step(s) taken by the team on {question}:\n{one}Go.",
        f"Q {question}\n2 step(s) taken by the team on {question}:\n{one}Step 2: \n\nGo.",
    ]


def test_passages_as_the_reference_shows_them():
    passages = [{"title": "Café", "text": 'a "b"\n'}, {"title": "", "text": " no title "}]
    assert drmas.information(passages) == (
        '\n<information>{"result": "Doc 1: \\"Caf\\u00e9\\"\\na \\"b\\"\\nDoc 2: no title\\n"}'
        "</information>\n"
    )
    assert drmas.information([]) == '\n<information>{"result": ""}</information>\n'


@pytest.mark.parametrize("id", [MATH, MATH_1, SEARCH, SEARCH_1])
@pytest.mark.parametrize("compat", ["dr-mas", "", True, {}])
def test_another_compatibility_is_refused(id, compat):
    with pytest.raises(UserError, match="drmas"):
        make(id, compat=compat)
