"""Suites of one's own in a YAML file, the files they may be in, and what is wrong with bad ones."""

import hashlib
import json
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.environment import Flags, environment
from benchmarks.suites import SuiteWarning, fingerprint, load_suite, read_suites, suite
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.tasks import TaskSet, load_tasks

ROWS = [
    {"ask": "What is 2 + 3?", "key": {"value": "5"}},
    {"ask": "What is 20 / 8?", "key": {"value": 2.5}},
    {"ask": "Half of one?", "key": {"value": ["\\frac{1}{2}"]}},
]
YAML = "sums: {data: files/sums.jsonl, question: [ask], answer: [key.value]}\n"


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def own(tmp_path):
    """Writes a suite file and its rows, as JSONL unless told otherwise."""
    (tmp_path / "files").mkdir()

    def write(yaml=YAML, rows=ROWS, file="sums.jsonl"):
        path = tmp_path / "files" / file
        if path.suffix == ".parquet":
            parquet = pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), path)
        elif path.suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            path.write_text("".join(line + "\n" for line in lines))
        (tmp_path / "my.yaml").write_text(yaml)
        return str(tmp_path / "my.yaml")

    return write


def test_a_suite_of_ones_own_needs_a_file_and_nothing_else(own, monkeypatch, tmp_path):
    path = own()
    tasks = load_suite(path)
    assert [task.answer for task in tasks] == ["5", "2.5", r"\frac{1}{2}"]
    assert load_suite(f"{path}#sums").digest == tasks.digest
    found = suite(path)
    assert (found.name, found.title, found.rows, found.sha256) == ("sums", "sums", None, None)
    assert load_tasks(**json.loads(json.dumps(tasks.spec))).digest == tasks.digest
    monkeypatch.chdir(tmp_path / "files")  # relative to the YAML file, not to where one stands
    assert load_suite("../my.yaml").digest == tasks.digest
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"ask": "Another?", "key": {"value": "7"}}) + "\n")
    assert load_suite(path, other)[0].answer == "7"


@pytest.mark.parametrize("file", ["sums.json", "sums.parquet"])
def test_json_lists_and_parquet_are_the_same_suite(own, file):
    rows = [{"ask": row["ask"], "key": {"value": str(row["key"]["value"])}} for row in ROWS[:2]]
    lines = load_suite(own(rows=rows))
    other = load_suite(own(YAML.replace("sums.jsonl", file), rows, file))
    assert fingerprint(other) == fingerprint(lines)


def test_parquet_without_pyarrow_says_what_to_install(own, monkeypatch):
    path = own(YAML.replace("sums.jsonl", "sums.parquet"), file="sums.json")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"sums\.parquet: .*pip install 'mas-gym\[parquet\]'"):
        load_suite(path)


def test_one_gold_is_the_same_content_as_a_list_of_one(own):
    yaml = YAML.replace("}", ", grader: qa}")
    for golds in (["Ann"], ["Ann", "Bo"]):
        pair = []
        for gold in (golds, golds[0]):
            pair.append(
                fingerprint(load_suite(own(yaml, [{"ask": "Who?", "key": {"value": gold}}])))
            )
        assert (pair[0] == pair[1]) is (len(golds) == 1)


def test_a_hash_and_a_count_are_checked_where_they_are_given(own):
    content = fingerprint(load_suite(own()))
    more = f"rows: 3, sha256: {content}"
    load_suite(own(YAML.replace("}", f", {more}}}")))
    with pytest.warns(SuiteWarning, match=r"not the canonical ffff"):
        load_suite(own(YAML.replace("}", f", sha256: {'f' * 64}}}")))
    with pytest.raises(BadFile, match="3 problems; sums has 4"):
        load_suite(own(YAML.replace("}", ", rows: 4}")))


@pytest.mark.parametrize(
    ("yaml", "name", "kind", "message"),
    [
        (YAML + YAML.replace("sums:", "more:"), "", BadFile, r"2 suites; say which: .*yaml#sums"),
        (YAML, "#sum", UnknownName, r"my\.yaml: unknown suite 'sum'; did you mean 'sums'"),
        ("sums: {question: [ask]}", "", BadFile, r"says not where.*give data: FILE\.jsonl"),
        (YAML.replace("data", "file"), "", BadFile, r"unknown field `file`; the keys are title, "),
        (YAML.replace("[ask]", "ask"), "", BadFile, r"suite 'sums': Expected `array`.*question"),
        ("", "", BadFile, r"my\.yaml: no suites; write `name: \{data: "),
        (YAML.replace("sums.jsonl", "none.jsonl"), "", BadFile, r"none\.jsonl: cannot be read"),
        (YAML.replace("files/sums.jsonl", "files"), "", BadFile, "is a folder; give the file"),
        ("s: {data: a.jsonl, grader: exact}", "", BadFile, "'exact'.*; grader is math or qa"),
        ("s: {data: a.jsonl, gold: text}", "", BadFile, "'text'.*; gold is integer or latex"),
        ('s: {data: a.jsonl, cut: "("}', "", BadFile, r"cut '\(' is no regular expression"),
        ("../evil: {data: a.jsonl}", "", BadFile, r"suite '\.\./evil'; a suite's name must do as"),
        ("..: {data: a.jsonl}", "", BadFile, r"suite '\.\.'; a suite's name must do as"),
        ("s: {data: a.jsonl}\ns: {data: b.jsonl}", "", BadFile, r"my\.yaml:2: .*'s' stands twice"),
    ],
)  # fmt: skip
def test_a_bad_suite_file(own, yaml, name, kind, message):
    with pytest.raises(kind, match=message):
        load_suite(own(yaml) + name)
    refused = bench("run", own(yaml) + name, "--policy", "scripted:adder", "--out", "unused")
    assert refused.exit_code == 2 and "Traceback" not in refused.output


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"ask": "What?"}, r"sums\.jsonl:2: no gold answer: 'key\.value' must hold one, got None"),
        ({"ask": "What?", "key": "5"}, r"sums\.jsonl:2: no gold answer: 'key\.value'"),
        ({"ask": 5, "key": {"value": "5"}}, r"sums\.jsonl:2: no problem: 'ask' must be a text"),
        ({"query": "What?", "key": {"value": "5"}}, r":2: no problem.*has key, query; name"),
        (ROWS[0] | {"key": {"value": "6"}}, r":2: asks the same question as line 1; keep one"),
        ("{'ask': 1}", r"sums\.jsonl:2: not JSON"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_line_and_key(own, row, message):
    with pytest.raises(BadFile, match=message):
        load_suite(own(rows=[ROWS[0], row, ROWS[1]]))


@pytest.mark.parametrize("rows", [[], ["", " "]])
def test_an_empty_file(own, rows):
    with pytest.raises(BadFile, match=r"sums\.jsonl: has no question; one row per question"):
        load_suite(own(rows=rows))


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "[1]"])
def test_a_json_file_that_is_no_list_of_objects(own, tmp_path, text):
    path = own(YAML.replace("sums.jsonl", "sums.json"))
    (tmp_path / "files" / "sums.json").write_text(text)
    with pytest.raises(BadFile, match=r"sums\.json(:1)?: (not JSON|a dict|a int)"):
        load_suite(path)


def test_a_parquet_file_that_is_none(own, tmp_path):
    pytest.importorskip("pyarrow")
    path = own(YAML.replace("sums.jsonl", "sums.parquet"))
    (tmp_path / "files" / "sums.parquet").write_text("no")
    with pytest.raises(BadFile, match=r"sums\.parquet: not a Parquet file"):
        load_suite(path)


def test_an_own_suite_is_run_and_no_path_is_recorded(own, tmp_path):
    path, out = own(), tmp_path / "run"
    result = bench("run", path, "--policy", "scripted:adder", "-k", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert f"{path}: 3 questions, content unpinned; its SHA-256 is" in result.stderr
    text = (out / "run.json").read_text()
    recorded = json.loads(text)["settings"]
    content = (tmp_path / "files" / "sums.jsonl").read_bytes()
    assert recorded["suite"]["name"] == "sums" and recorded["suite"]["rows"] == 3
    assert recorded["suite"]["file_sha256"] == hashlib.sha256(content).hexdigest()
    assert str(tmp_path) not in text and recorded["env"]["kwargs"]["tasks"]["name"] == "my.yaml"


def test_a_folder_as_data_holds_many_suites(own, tmp_path):
    own()
    rows = "".join(json.dumps({"problem": f"{i}?", "answer": i}) + "\n" for i in range(40))
    (tmp_path / "amc23.jsonl").write_text(rows)
    with pytest.warns(SuiteWarning, match="not the canonical"):
        assert len(load_suite("amc23", tmp_path)) == 40
    assert len(load_suite("arith", tmp_path)) == 240  # embedded suites pass the folder by
    assert len(load_suite(str(tmp_path / "my.yaml"), tmp_path)) == 3


QUIZ = TaskSet([("Who?", "Ann", {})])


def test_a_search_suite_is_not_asked_of_tinyworlds_passages():
    with pytest.raises(UserError, match=r"suite 'nq' needs --env-arg retriever=…"):
        environment("nq", QUIZ, Flags())
    with pytest.raises(UserError, match="needs --env-arg retriever"):
        environment("nq", QUIZ, Flags(env="search-single-v0"))
    made = environment("nq", QUIZ, Flags(env_arg=["retriever=http://127.0.0.1:1"]))
    assert made.spec.kwargs["grading"] == "squad" and made.normaliser == "squad"


def test_the_suites_normaliser_holds_in_other_environments_that_take_one():
    given = ["retriever=http://127.0.0.1:1"]
    single = environment("nq", QUIZ, Flags(env="search-single-v0", env_arg=given))
    assert single.normaliser == "squad"
    alone = environment("nq", QUIZ, Flags(env="math-single-v0", env_arg=["grading=drmas"]))
    assert alone.spec.kwargs["grading"] == "drmas"
    theirs = environment("nq", QUIZ, Flags(env_arg=[*given, "compat=drmas"]))
    assert theirs.normaliser == "squad" and "grading" not in theirs.spec.kwargs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine: {title: T, rows: 3, licence: L, row: 4}", "suite 'mine'.*`row`"),
        ("mine: {title: T, rows: three, licence: L}", r"suite 'mine'.*int.*rows"),
        ("mine: {data: 3}", r"suite 'mine'.*str.*\$\.data"),
        ("mine: [1]", "suite 'mine'.*object"),
        ("mine: {title: T, rows: 3, licence: L, gold: number}", r"'mine'.*'number'.*gold"),
        ("a: [\nb", r"own\.yaml:2: not YAML"),
        ("- 1", "no suites"),
    ],
)
def test_a_bad_suite_file_names_the_key(tmp_path, text, message):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(BadFile, match=message):
        read_suites(path)
