"""The contamination check against a plain search, planted leaks, and our own splits."""

import json
import random
import re
import tracemalloc
import unicodedata
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.suites import load_suite
from benchmarks.suites.contamination import Benchmarks, contamination
from benchmarks.suites.training import split_of
from benchmarks.suites.words import words
from mas_envs.math.arith import canonical
from mas_envs.tasks import TaskSet, load_tasks
from tests.benchmarks.test_suites import DATA, FILES, needs_data

LONG = "Anna walks at a constant speed of s km/h and then stops for t minutes at a small cafe"
SHORT = "who wrote the song that the band sang in 1999"  # 10 words


def tasks(*questions):
    return TaskSet((question, "1", {}) for question in questions)


def kinds(benchmark, *training):
    found = contamination(Benchmarks({"b": tasks(*benchmark)}), training)["b"]
    return {kind: dict(places) for kind, places in found.by_kind.items()}


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        LONG.upper() + "?",
        f"  {LONG.replace(' ', chr(10))}.",
        LONG.replace("km/h", "$km/h$"),
        unicodedata.normalize("NFKC", LONG.replace("s ", "ｓ ")),
    ],
)
def test_the_whole_question_in_another_dress_is_exact(text):
    assert kinds([LONG], "Something else", text) == {"exact": {0: [2]}}


def test_a_question_within_another_and_thirteen_words_in_a_row():
    assert kinds([SHORT], f"Answer this: {SHORT}? Think.") == {"contained": {0: [1]}}
    part = " ".join(LONG.split()[2:16])
    assert kinds([LONG], f"Bob {part} here") == {"13-gram": {0: [1]}}
    twelve = " ".join(words(LONG)[2:14])
    assert kinds([LONG], f"Bob {twelve} here") == {}
    assert kinds(["who is she"], "tell me who is she now") == {}  # too short to be told apart


def test_signs_matter_to_the_whole_question():
    assert kinds(["3+5+8=?"], "3-5-8=?", "3+5-8=?", "3 + 5 + 8 = ?") == {"exact": {0: [3]}}


def test_a_phrase_of_the_field_counts_for_no_question():
    phrase = "where m and n are relatively prime positive integers find the sum of m and n"
    three = [f"Number {i} is m/n, {phrase}" for i in ("one", "two", "three")]
    assert kinds(three, f"A wholly different problem, {phrase}") == {}
    assert kinds(three[:2], f"A different problem, {phrase}") == {"13-gram": {0: [1], 1: [1]}}
    assert kinds(three, three[1]) == {"exact": {1: [1]}}
    # The same question in three suites is one question.
    same = Benchmarks({name: tasks(LONG) for name in "abc"})
    found = contamination(same, [f"Bob says: {LONG}"])
    assert [one.touched for one in found.values()] == [[0], [0], [0]]


vocabulary = st.sampled_from(["aa", "bb", "cc", "dd"])
text = st.lists(vocabulary, min_size=1, max_size=30).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(text, min_size=1, max_size=2, unique=True), st.lists(text, max_size=4))
def test_it_finds_what_a_plain_search_finds(benchmark, training):
    expected = {}
    for row, trained in enumerate(training, 1):
        for number, asked in enumerate(benchmark):
            listed = asked.split()
            grams = {" ".join(listed[i : i + 13]) for i in range(len(listed) - 12)}
            padded = f" {trained} "
            if asked.replace(" ", "") == trained.replace(" ", ""):
                kind = "exact"
            elif 8 <= len(listed) < 13 and f" {asked} " in padded:
                kind = "contained"
            elif any(f" {gram} " in padded for gram in grams):
                kind = "13-gram"
            else:
                continue
            expected.setdefault(kind, {}).setdefault(number, []).append(row)
    assert kinds(benchmark, *training) == expected


def test_training_rows_are_streamed():
    benchmarks = Benchmarks({"arith": load_suite("arith")})
    rng = random.Random(0)

    def rows(count):
        for _ in range(count):
            yield " ".join(str(rng.random()) for _ in range(50))

    tracemalloc.start()
    contamination(benchmarks, rows(500))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000  # a row is 1 kB, so all of them are 500 kB


# ---- the command ------------------------------------------------------------------------------


def bench(*args):
    return CliRunner().invoke(app, ["contamination", *map(str, args)])


def write(path, questions, **keys):
    rows = [{"question": question, "answer": "1"} for question in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_leak_is_told_by_suite_and_row_and_by_exit_code(tmp_path):
    leaked = load_suite("arith")[7].question
    train = write(tmp_path / "t.jsonl", ["1+1=?", leaked, "What else?", leaked.replace("=", " =")])
    result = bench(train, "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["arith"]["touched"] == [7] and found["arith"]["rows"] == [2, 4]
    assert found["arith"]["exact"] == {"7": [2, 4]}
    assert found["tinyworld"]["touched"] == [] and found["tinyworld"]["questions"] == 400
    shown = bench(train)
    assert shown.exit_code == 1 and re.search(r"arith .* 240 .* 1 ", shown.stdout)
    assert "training rows that touch arith: 2, 4\n" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80 and "…" not in shown.stdout
    assert "not at hand" in shown.stderr and "math500" in shown.stderr
    assert bench(train, "--suite", "tinyworld").exit_code == 0


def test_a_clean_file(tmp_path):
    result = bench(write(tmp_path / "t.jsonl", ["How many beans make five?"]))
    assert result.exit_code == 0, result.output


def test_files_of_suites_and_own_ones(tmp_path):
    (tmp_path / "my.yaml").write_text("quiz: {data: quiz.jsonl}\n")
    write(tmp_path / "quiz.jsonl", [SHORT])
    train = write(tmp_path / "t.jsonl", [SHORT])
    assert bench(train).exit_code == 0
    assert bench(train, "--suite", tmp_path / "my.yaml").exit_code == 1
    amc = write(tmp_path / "amc23.jsonl", [f"{SHORT} ({i})" for i in range(39)] + [SHORT])
    for data in (f"amc23={amc}", tmp_path):
        found = bench(train, "--data", data, "--json")
        assert found.exit_code == 1 and json.loads(found.stdout)["amc23"]["exact"] == {"39": [1]}


def test_parquet_of_the_recipes(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    leaked = load_suite("tinyworld")[0].question
    rows = [{"env_kwargs": {"question": leaked, "ground_truth": "x"}, "data_source": "s"}]
    path = tmp_path / "train.parquet"
    parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), path)
    found = bench(path, "--json")
    assert found.exit_code == 1 and json.loads(found.stdout)["tinyworld"]["rows"] == [1]


@pytest.mark.parametrize(
    ("name", "content", "args", "message"),
    [
        ("t.jsonl", '{"q": "Who?"}\n', (), r"t\.jsonl:1: no 'question'; it has \['q'\]"),
        ("t.jsonl", "", (), r"t\.jsonl: has no row"),
        ("t.jsonl", '{"question": "Who?"', (), r"t\.jsonl:1: not JSON"),
        ("t.csv", "question", (), r"t\.csv: is a \.csv file; give \.jsonl or \.parquet"),
        ("t.parquet", "no", (), r"t\.parquet: not a Parquet file"),
        ("t.jsonl", "{}", ("--data", "none"), r"--data none: no such folder; give SUITE=FILE"),
        ("t.jsonl", "{}", ("--suite", "aime24"), r"'aime24' is not part.*pass --data FILE"),
        ("t.jsonl", "{}", ("--data", "amc=x"), r"unknown suite 'amc'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path, name, content, args, message):
    (tmp_path / name).write_text(content)
    refused = bench(tmp_path / name, *args)
    assert refused.exit_code == 2 and re.search(message, refused.stderr), refused.output
    assert len(refused.stderr.splitlines()) == 1
    assert bench(tmp_path / "none.jsonl").exit_code == 2


# ---- our own splits ---------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(seeds=st.tuples(*[st.integers(0, 2**32)] * 3), kind=st.sampled_from(["sum", "word"]))
def test_splits_of_arith_never_overlap_whatever_the_seed(seeds, kind):
    forms = {}
    for split, seed in zip(("train", "dev", "test"), seeds, strict=True):
        found = load_tasks("arith", split=split, seed=seed, kinds=[kind], levels=[1, 3, 4], n=90)
        forms[split] = {canonical(task.meta["operands"]) for task in found}
    forms["suite"] = {task.meta["canonical"] for task in load_suite("arith")}
    assert not forms["dev"] & (forms["train"] | forms["test"] | forms["suite"])
    assert not forms["train"] & (forms["test"] | forms["suite"])


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 1000))
def test_splits_of_tinyworld_share_no_subject_whatever_the_world(seed):
    test = {task.meta["entity"] for task in load_suite("tinyworld")}
    subjects = {
        split: {task.meta["entity"] for task in load_tasks("tinyworld", split=split, seed=seed)}
        for split in ("train", "dev", "test")
    }
    assert not subjects["dev"] & (subjects["train"] | subjects["test"] | test)
    assert not subjects["train"] & (subjects["test"] | test)


def test_embedded_training_questions_are_clean_by_the_check_itself():
    suites = Benchmarks({name: load_suite(name) for name in ("arith", "tinyworld")})
    for name in ("arith", "tinyworld"):
        for split in ("train", "dev"):
            questions = [task.question for task in load_tasks(name, split=split)]
            for one in contamination(suites, questions).values():
                assert one.by_kind.keys() <= {"13-gram"}  # of templates, told with their words
                assert len(one.touched) <= 2
                assert all(len(match.shared.split()) == 13 for match in one.examples)


@given(st.text(), st.sampled_from(["", " ", "?", ".", "\n"]))
def test_a_question_in_another_dress_stays_on_its_side(question, end):
    assert split_of(question) == split_of(question.replace("'", "’") + end)


def test_the_dev_side_is_small_and_there():
    sides = [split_of(f"question number {i}") for i in range(20_000)]
    assert 300 < sides.count("dev") < 500  # 2 %: 400 ± 20


@needs_data
def test_the_benchmarks_of_the_paper_touch_each_other_little():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ("aime24", "aime25", "amc23", "math500")
        suites = {name: load_suite(name, DATA / FILES[name][0]) for name in names}
    index = Benchmarks(suites)
    for name, own in suites.items():
        found = contamination(index, (task.question for task in own))
        assert len(found[name].by_kind["exact"]) == len(own)
        others = sum(len(one.touched) for other, one in found.items() if other != name)
        assert others <= 10, (name, others)
