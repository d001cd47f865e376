"""Suites: the real files load and count right; bad copies are named or refused."""

import hashlib
import json
import re
import warnings
from pathlib import Path

import msgspec
import pytest

from benchmarks.suites import (
    SuiteWarning,
    fingerprint,
    load_suite,
    loading,
    suite,
    suites,
)
from benchmarks.suites.spec import Suite
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.grading import grade_math
from mas_envs.tasks import TaskSet, load_tasks

DATA = Path(__file__).parents[3] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs shared/data")
FILES = {
    "aime24": ("aime24.qwen25math.jsonl", 30),
    "aime25": ("aime25.evalreasoning.jsonl", 30),
    "amc23": ("amc23.qwen25math.jsonl", 40),
    "math500": ("math500.jsonl", 500),
    "minerva": ("minerva_math.qwen25math.jsonl", 272),
    "olympiadbench": ("olympiadbench.qwen25math.jsonl", 675),
}
SEARCH = {
    "nq": ("nq_open_dev.jsonl", 3610),
    "hotpotqa": ("hotpotqa_dev_simplified.react.json", 7405),
    "bamboogle": ("bamboogle.r1searcher.jsonl", 125),
    "hotpotqa_500": ("hotpotqa_500.r1searcher.jsonl", 500),
    "2wiki_500": ("2wiki_500.r1searcher.jsonl", 500),
    "musique_500": ("musique_500.r1searcher.jsonl", 500),
    "efficientqa": ("nq_efficientqa_dev_1.1.jsonl", 1800),
}
UNPINNED = {"triviaqa": 11313, "popqa": 14267, "2wiki": 12576, "musique": 2417}


@needs_data
@pytest.mark.parametrize("name", [*FILES, *SEARCH])
def test_real_files(name):
    file, rows = (FILES | SEARCH)[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tasks = load_suite(name, DATA / file)
    assert len(tasks) == rows == suite(name).rows
    assert fingerprint(tasks) == suite(name).sha256
    assert len({task.id for task in tasks}) == rows
    golds = [[t.answer] if isinstance(t.answer, str) else t.answer for t in tasks]
    assert all(task.question.strip() for task in tasks)
    assert all(found and all(map(str.strip, found)) for found in golds)
    origin = suite(name).origin
    content = (DATA / file).read_bytes()
    assert (origin.bytes, origin.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    messages = [str(w.message) for w in caught if w.category is SuiteWarning]
    if name == "math500":  # tabs in two problems, in every copy
        assert len(messages) == 1 and "line 18 ('\\t'), line 427 ('\\t')" in messages[0]
    elif name in ("nq", "hotpotqa", "efficientqa"):
        assert len(messages) == 1 and "SQuAD's normaliser empties" in messages[0]
    else:
        assert messages == []


@needs_data
@pytest.mark.parametrize("name", ["aime24", "aime25", "amc23"])
def test_competition_golds_are_plain_integers(name):
    tasks = load_suite(name, DATA / FILES[name][0])
    assert all(task.answer == str(int(task.answer)) for task in tasks)
    if name == "aime24":
        problem_12 = [t for t in tasks if t.meta["url"].endswith("2024_AIME_I_Problems/Problem_12")]
        assert [t.answer for t in problem_12] == ["385"]  # some copies say 384
        assert "25" in {t.answer for t in tasks}  # written "025" in the file


@needs_data
def test_minerva_and_olympiadbench_golds():
    minerva = load_suite("minerva", DATA / FILES["minerva"][0])
    assert all("boxed" not in task.answer for task in minerva)
    powers = [task.answer for task in minerva if r"\times 10^{" in task.answer]
    assert len(powers) >= 58 and not any(re.search(r"\d[eE][-+\d]", t.answer) for t in minerva)
    olympiad = load_suite("olympiadbench", DATA / FILES["olympiadbench"][0])
    assert not any("$" in task.answer for task in olympiad)
    assert sum(task.meta["is_multiple_answer"] for task in olympiad) == 94
    # The absolute tolerance of one problem ("correct to one decimal place") is kept, not applied.
    assert [task.meta["error"] for task in olympiad if "error" in task.meta] == ["1e-1"]
    golds = {task.answer for task in olympiad}
    assert {r"45 \text{ minute}", r"166 \text{ cm}^2", r"\frac{600}{7} \text{ km/h}"} <= golds
    assert "4.2" in golds, "r of r% is the number"
    assert r"t \in (0,4]" in golds, "t(0,4] in the source"


@needs_data
def test_units_beside_the_golds_of_olympiadbench():
    tasks = load_suite("olympiadbench", DATA / FILES["olympiadbench"][0])
    units = {task.meta["unit"]: task.answer for task in tasks if "unit" in task.meta}
    for unit, answer, correct in [
        ("minute", "45", True),
        ("minute", r"45 \text{ minutes}", True),
        ("minute", r"\frac{3}{4} \text{ hours}", True),
        ("minute", r"45 \text{ hours}", False),
        ("$cm^2$", r"166 \mathrm{~cm}^{2}", True),
        ("$cm^2$", r"166 \text{ cm}", False),
        ("km/h", r"85\frac{5}{7} \text{ km/h}", True),
        ("%", "4.2", True),
        ("%", r"4.2\%", True),
        ("%", "4.3", False),
        ("^{\\circ}", r"90^\circ, 90^\circ", True),
        ("^{\\circ}", "90, 90", True),
        ("^{\\circ}", "90, 91", False),
    ]:
        assert grade_math(rf"\boxed{{{answer}}}", units[unit]).correct is correct, (unit, answer)


@needs_data
def test_the_solution_is_never_beside_the_question():
    for name, (file, _) in FILES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuiteWarning)
            tasks = load_suite(name, DATA / file)
        assert all("solution" not in t.meta and "answer" not in t.meta for t in tasks)


def test_arith_is_embedded_held_out_and_of_three_difficulties():
    tasks = load_suite("arith")
    assert len(tasks) == 240 and fingerprint(tasks) == suite("arith").sha256
    assert {task.meta["level"] for task in tasks} == {1, 2, 3}
    trained = {task.meta["canonical"] for task in load_tasks("arith", split="train")}
    assert not trained & {task.meta["canonical"] for task in tasks}
    with pytest.raises(UserError, match=r"embedded.*drop --data"):
        load_suite("arith", "some.jsonl")


def problems(count=30):
    """Own problems in the shape of AIME files."""
    return [{"problem": f"What is {i} + 1?", "answer": str(i + 1).zfill(3)} for i in range(count)]


def write(path, rows):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def changed(place, **fields):
    rows = problems()
    rows[place] = {k: v for k, v in (rows[place] | fields).items() if v != "drop"}
    return rows


@pytest.fixture
def copy(tmp_path):
    return lambda rows: write(tmp_path / "copy.jsonl", rows)


def test_another_content_is_reported(copy):
    with pytest.warns(SuiteWarning, match="not the canonical"):
        tasks = load_suite("aime24", copy(problems()))
    assert tasks[4].answer == "5" and len(tasks) == 30


@pytest.mark.filterwarnings("ignore::benchmarks.suites.SuiteWarning")
@pytest.mark.parametrize(
    ("answer", "gold"),
    [("025", "25"), (27.0, "27"), (7, "7"), ("0", "0"), ("000", "0"), ("27.0", "27")],
)
def test_integer_golds(copy, answer, gold):
    assert load_suite("aime25", copy(changed(3, answer=answer)))[3].answer == gold


@pytest.mark.filterwarnings("ignore::benchmarks.suites.SuiteWarning")
def test_hub_copies_with_other_field_names(copy):
    rows = [
        {"question": r["problem"], "solution": rf"so \boxed{{{r['answer']}}}"} for r in problems()
    ]
    assert load_suite("aime24", copy(rows))[3].answer == "4"


@pytest.mark.filterwarnings("ignore::benchmarks.suites.SuiteWarning")
@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (["$2n-2$"], "2n-2"),
        (["$69$,$84$"], "69,84"),
        (["$x = 1$", "$x = 2$"], "x = 1, x = 2"),
        (["$(0, 1)$."], "(0, 1)"),
        (["$t(0,4]$"], r"t \in (0,4]"),  # the errata of that suite
        ("4.5e33", r"4.5 \times 10^{33}"),
        (4.5e33, r"4.5 \times 10^{33}"),
        (1e-05, r"1 \times 10^{-5}"),
        (0.25, "0.25"),
        ([r"\(2\)"], "2"),
        ([r"\$18.90"], r"\$18.90"),
        (r"\left(0,1\right.", r"\left(0,1\right."),
    ],
)
def test_latex_golds(copy, answer, gold):
    rows = [{"question": f"Problem {i}", "final_answer": answer} for i in range(675)]
    assert load_suite("olympiadbench", copy(rows))[0].answer == gold


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (problems(29), r"copy\.jsonl: 29 problems; AIME 2024 has 30"),
        (problems(31), r"31 problems"),
        ([*problems(3), '{"problem": "x', *problems(26)], r"copy\.jsonl:4: not JSON"),
        ([*problems(3), "[1, 2]"], r"copy\.jsonl:4: a list"),
        (changed(7, problem="drop"), r"copy\.jsonl:8: no problem: 'problem' or 'question'"),
        (changed(7, problem="  "), r"copy\.jsonl:8: no problem"),
        (changed(7, problem=5), r"copy\.jsonl:8: no problem"),
        (changed(7, answer="drop"), r"copy\.jsonl:8: no gold answer: 'answer' or 'solution'"),
        (changed(7, answer=""), r"copy\.jsonl:8: no gold"),
        (changed(7, answer=[]), r"copy\.jsonl:8: no gold"),
        (changed(7, answer=True), r"copy\.jsonl:8: no gold"),
        (changed(7, answer={"x": 1}), r"copy\.jsonl:8: no gold"),
        (changed(7, answer="drop", solution="no box"), r"copy\.jsonl:8: no gold"),
        (changed(7, answer="3.5"), r"copy\.jsonl:8: .*is an integer.*'3\.5'"),
        (changed(7, answer=float("nan")), r"copy\.jsonl:8: not JSON"),
        (changed(7, answer="\n"), r"copy\.jsonl:8: no gold"),
    ],
)
def test_bad_copies_are_refused_by_line(copy, rows, message):
    with pytest.raises(BadFile, match=message):
        load_suite("aime24", copy(rows))


@pytest.mark.filterwarnings("ignore:.*canonical:benchmarks.suites.SuiteWarning")
@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("\frac{1}{2}", r"copy\.jsonl:3: gold .* control character '\\x0c'.*; in JSON write"),
        (r"\frac{1}{2", r"copy\.jsonl:3: gold .*brace without a partner; give the whole answer"),
        ("5 or 6", r"copy\.jsonl:3: gold '5 or 6' leaves open .*; write them with a comma"),
        ("10^{9^{9^9}}", r"copy\.jsonl:3: gold .* is too much"),
        ("$$", r"copy\.jsonl:3: no gold answer: 'answer' must hold one, got '\$\$'"),
        ("x" * 5000, r"copy\.jsonl:3: gold 'xxx.* has 5000 characters"),
    ],
)
def test_a_gold_that_cannot_be_graded_is_refused_by_line(copy, gold, message):
    rows = [{"problem": f"Problem {i}", "answer": "7"} for i in range(500)]
    rows[2]["answer"] = gold
    with pytest.raises(BadFile, match=message):
        load_suite("math500", copy(rows))


@pytest.mark.filterwarnings("ignore:.*canonical:benchmarks.suites.SuiteWarning")
def test_a_gold_that_only_the_same_text_equals_is_reported(copy):
    rows = [{"problem": f"Problem {i}", "answer": "7"} for i in range(500)]
    rows[2]["answer"] = "x@y"
    with pytest.warns(SuiteWarning, match=r"only the same text equals: line 3 \(x@y: unexpected"):
        load_suite("math500", copy(rows))


@pytest.fixture
def qa_suite(monkeypatch):
    """A QA suite of two questions that reads a file."""
    found = Suite(name="quiz", title="Quiz", rows=2, licence="own", grader="qa")
    monkeypatch.setattr(loading, "suite", lambda name: found)


def quiz(*golds):
    return [{"question": f"Question {i}?", "answer": gold} for i, gold in enumerate(golds)]


@pytest.mark.usefixtures("qa_suite")
def test_golds_of_a_qa_suite_are_texts_of_which_any_counts(copy):
    tasks = load_suite("quiz", copy(quiz(["4.5e33", " 3, 4 "], "Paris ")))
    assert [task.answer for task in tasks] == [["4.5e33", "3, 4"], "Paris"]
    with pytest.warns(SuiteWarning, match=r"SQuAD's normaliser empties: line 2 \('A'\)"):
        load_suite("quiz", copy(quiz("Paris", ["Rome", "A"])))


@pytest.mark.usefixtures("qa_suite")
@pytest.mark.parametrize("gold", [[], ["Paris", ""], [" "], "", None, 5, ["Paris", 5], [None]])
def test_an_empty_gold_of_a_qa_suite_is_refused_by_line(copy, gold):
    with pytest.raises(
        BadFile, match=r"copy\.jsonl:2: no gold answer: 'answer' is .*list of texts"
    ):
        load_suite("quiz", copy(quiz("Paris", gold)))


@pytest.mark.parametrize(
    ("name", "gold", "message"),
    [("arith", "4.0e1", r"task 0 is not in normal spelling"), ("arith", "5 or 6", "leaves open"),
     ("tinyworld", " ", "task 0 has an empty gold")],
)  # fmt: skip
def test_an_embedded_gold_that_is_not_normal_is_refused(monkeypatch, name, gold, message):
    monkeypatch.setattr(loading, "load_tasks", lambda **_: TaskSet([("What?", gold, {})]))
    with pytest.raises(UserError, match=message):
        load_suite(name)


@pytest.mark.filterwarnings("ignore:.*canonical:benchmarks.suites.SuiteWarning")
def test_the_copies_of_aime_2024_with_384_are_told_and_mended(copy):
    rows = problems()
    rows[11]["answer"] = "385"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuiteWarning)
        right = fingerprint(load_suite("aime24", copy(rows)))
    for written in ("384", 384, 384.0, "0384"):
        rows[11]["answer"] = written
        with pytest.warns(SuiteWarning, match=r"line 12 \(384 is a known mistake, 385 is taken: "):
            assert fingerprint(load_suite("aime24", copy(rows))) == right
    del rows[11]["answer"]
    rows[11]["solution"] = r"Hence \boxed{384}."
    with pytest.warns(SuiteWarning, match=r"line 12 \(384 is a known mistake"):
        assert load_suite("aime24", copy(rows))[11].answer == "385"


@needs_data
def test_no_right_gold_is_called_a_mistake():
    for name, found in suites().items():
        if found.mistakes:
            golds = {task.answer for task in load_suite(name, DATA / FILES[name][0])}
            assert not golds & found.mistakes.keys()
            assert {right for right, _ in found.mistakes.values()} <= golds


def test_missing_files(tmp_path):
    with pytest.raises(
        UserError, match=r"pass --data FILE.*AIME 2024 \(30.*aime24@unpinned.*mas-bench fetch"
    ):
        load_suite("aime24")
    with pytest.raises(BadFile, match=r"none\.jsonl: cannot be read"):
        load_suite("aime24", tmp_path / "none.jsonl")
    with pytest.raises(UserError, match=r"the folder has no aime24\.jsonl.*mas-bench fetch aime24"):
        load_suite("aime24", tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'aime24'"):
        load_suite("aime2024")


@pytest.mark.filterwarnings("ignore:.*canonical:benchmarks.suites.SuiteWarning")
@pytest.mark.parametrize("text", ["\frac{1}{2}", "a\text{b}", "\boxed{}", "\right)"])
def test_unescaped_latex_is_reported_with_its_line(copy, text):
    with pytest.warns(SuiteWarning, match=r"control characters.*line 10 \("):
        load_suite("aime25", copy(changed(9, problem=f"Find {text}.")))


def test_line_ends_are_not_control_characters(copy):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_suite("aime25", copy(changed(9, problem="Find\r\nthe\nsum.")))
    assert not any("control characters" in str(w.message) for w in caught)


@pytest.mark.filterwarnings("ignore::benchmarks.suites.SuiteWarning")
def test_the_spec_of_the_tasks_loads_them_again(copy):
    tasks = load_suite("aime24", copy(problems()))
    spec = json.loads(json.dumps(tasks.spec))
    assert load_tasks(**spec).digest == tasks.digest
    assert load_tasks(**load_suite("arith").spec).digest == load_suite("arith").digest


def test_the_fingerprint_ignores_the_order_and_nothing_else(copy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuiteWarning)
        one = fingerprint(load_suite("aime24", copy(problems())))
        assert fingerprint(load_suite("aime24", copy(problems()[::-1]))) == one
        assert fingerprint(load_suite("aime24", copy(changed(3, answer="5")))) != one
        assert fingerprint(load_suite("aime24", copy(changed(3, problem="What?")))) != one


def test_the_suites_of_the_package():
    assert set(suites()) == {*FILES, *SEARCH, *UNPINNED, "arith", "tinyworld"}
    for name, found in suites().items():
        assert found.name == name and found.title and found.licence
        assert found.rows == UNPINNED.get(name, found.rows) and found.rows is not None
        assert (found.sha256 is None) == (name in UNPINNED)
        assert found.sha256 is None or re.fullmatch("[0-9a-f]{64}", found.sha256)
        assert (found.origin is None) == (name in UNPINNED or found.tasks is not None)
        assert found.origin is None or re.fullmatch("[0-9a-f]{40}", found.origin.commit)
        if name in {**SEARCH, **UNPINNED}:
            assert found.grader == "qa" and found.env.id == "search-v0"
            assert found.env.args == {"grading": "squad"} and found.env.needs == ("retriever",)
        assert found.hub is None or found.hub.revision is None  # none has been verified
        assert found.hub is not None or found.tasks is not None or found.origin is not None
        assert found.hub is None or "unpinned" in found.source
        assert msgspec.json.decode(msgspec.json.encode(found))["rows"] == found.rows
