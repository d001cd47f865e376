"""Tasks from every source: what is read, what is refused (with file and line), ids that stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mas_envs
from mas_envs import Task, TaskSet, load_tasks
from mas_envs.errors import BadFile, UnknownName, UserError


def jsonl(tmp_path, *lines, name="t.jsonl"):
    path = tmp_path / name
    path.write_bytes(b"\n".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines
    ))  # fmt: skip
    return path


def row(question="q", answer="a", **more):
    return {"question": question, "answer": answer, **more}


def test_ids_are_pinned():
    """Published results name these ids: a change of the hash breaks every stored episode."""
    tasks = TaskSet([("What is 1+1?", "2", {}), ("Né 中?", ["Paris", "Lutèce"], {"x": 1})])
    assert [task.id for task in tasks] == PINNED
    again = TaskSet([("What is 1+1?", "2", {"other": "meta"}), ("What is 1+1?", "2", {})])
    assert again[0].id == PINNED[0], "meta does not enter the id"
    assert again[1].id == PINNED_REPETITION


PINNED = ["e74984f7cf8873ca", "840ba26a12d718c8"]
PINNED_REPETITION = "1f399ec04c2c9f71"


def test_repetitions_get_ids_of_their_own():
    tasks = TaskSet([("q", "a", {})] * 50 + [("q", ["a"], {}), ("q", "b", {})])
    assert len({task.id for task in tasks}) == 52
    assert all(tasks.by_id(task.id) is task for task in tasks)
    assert TaskSet([("q", "a", {})] * 50)[49].id == tasks[49].id


@given(st.lists(st.tuples(st.text(), st.text() | st.lists(st.text(), min_size=1)), max_size=8))
@settings(deadline=None)
def test_ids_depend_on_content_only(rows):
    tasks = TaskSet((question, answer, {}) for question, answer in rows)
    assert len({task.id for task in tasks}) == len(rows)
    assert [task.id for task in tasks] == [t.id for t in TaskSet((q, a, {}) for q, a in rows)]
    assert all(len(task.id) == 16 and int(task.id, 16) >= 0 for task in tasks)


def test_a_task_set_is_a_sequence():
    tasks = TaskSet([(f"q{n}", "a", {}) for n in range(5)])
    assert [task.question for task in tasks[1:3]] == ["q1", "q2"]
    assert tasks[-1].question == "q4"
    assert tasks[2] in tasks
    assert len(tasks) == 5
    assert tasks.digest == TaskSet([(f"q{n}", "a", {}) for n in range(5)]).digest
    assert tasks.digest != TaskSet([(f"q{n}", "a", {}) for n in range(4)]).digest


@pytest.mark.parametrize("identity", ["0" * 16, "", None, 3, [], {}])
def test_an_unknown_id_names_the_set(identity):
    tasks = load_tasks("arith", split="dev", n=3)
    with pytest.raises(UserError, match=r"among the 3 of .*arith"):
        tasks.by_id(identity)


@pytest.mark.parametrize("identity", ["t1", "", "0" * 15, "0" * 17, "G" * 16, "0" * 16 + "\n"])
def test_a_task_made_by_hand_needs_a_real_id(identity):
    with pytest.raises(UserError, match="TaskSet"):
        Task(id=identity, question="q", answer="a")


def test_tasks_in_memory_cannot_be_loaded_again_and_say_so():
    tasks = TaskSet([("q", "a", {})])
    with pytest.raises(UnknownName, match="in memory"):
        load_tasks(**tasks.spec)


def test_lone_surrogates_are_replaced_everywhere():
    (task,) = TaskSet([("\ud800?", ["\udc00"], {"x": ["\ud800"]})])
    assert (task.question, task.answer, task.meta) == ("\ufffd?", ["\ufffd"], {"x": ["\ufffd"]})


def test_meta_must_be_json():
    with pytest.raises(TypeError, match="meta of 'q'"):
        TaskSet([("q", "a", {"x": object()})])


# ---- JSONL --------------------------------------------------------------------------------------


def test_jsonl(tmp_path):
    path = jsonl(tmp_path, row(level=3, solution="long"), b"", row("é 中 😀 \u2028", ["x", "y"]))
    tasks = load_tasks(path)
    assert [(t.question, t.answer, t.meta) for t in tasks] == [
        ("q", "a", {"level": 3}), ("é 中 😀 \u2028", ["x", "y"], {})
    ]  # fmt: skip
    assert tasks.spec == {"source": str(path)}
    assert load_tasks(**tasks.spec).digest == tasks.digest


def test_renamed_fields(tmp_path):
    path = jsonl(tmp_path, {"problem": "p", "final": "f", "question": "other"})
    (task,) = load_tasks(path, question="problem", answer="final")
    assert (task.question, task.answer, task.meta) == ("p", "f", {"question": "other"})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("27.0", "27"), ("27", "27"), ("0", "0"), ("0.0", "0"), ("-0.0", "0"), ("-3", "-3"),
        ("0.5", "0.5"), ("-1.25e-3", "-0.00125"), ("1e22", "1" + "0" * 22), ("1e3", "1000"),
        ("9007199254740993", "9007199254740993"), ("1" * 400, "1" * 400), ('"27.0"', "27.0"),
        ('"0"', "0"), ("[27.0, 28]", ["27", "28"]), ("[0]", ["0"]), ('["a", 1.5]', ["a", "1.5"]),
        ('" x "', " x "),
    ],
)  # fmt: skip
def test_answers_as_numbers(tmp_path, text, answer):
    path = jsonl(tmp_path, b'{"question": "q", "answer": ' + text.encode() + b"}")
    assert load_tasks(path)[0].answer == answer


@pytest.mark.parametrize(
    "text", ["null", "true", "false", '""', '"  "', "[]", '[""]', "[null]", "[[1]]", "[true]", "{}"]
)
def test_answers_that_are_none(tmp_path, text):
    path = jsonl(tmp_path, row(), b'{"question": "q", "answer": ' + text.encode() + b"}")
    with pytest.raises(BadFile, match=r"t\.jsonl:2: 'answer' is "):
        load_tasks(path)


@pytest.mark.parametrize("question", [None, "", " \n", 3, ["q"], True])
def test_questions_that_are_none(tmp_path, question):
    with pytest.raises(BadFile, match=r"t\.jsonl:3: 'question' is "):
        load_tasks(jsonl(tmp_path, row(), b"  ", row(question)))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"), (b"nonsense", "not JSON"), (b"\xff\xfe{}", "not JSON"),
        (b'{"question": "q", "answer": NaN}', "not JSON"), (b"[" * 50_000, "not JSON"),
        (b'{"question": "q", "answer": 1e999}', "not JSON"), (b'{"question": "\xff"}', "not JSON"),
        (b"[]", "a list, not an object"), (b"3", "a int, not an object"),
        (b"null", "a NoneType, not an object"), (b'"q"', "a str, not an object"),
        (b"{}", r"no 'question'; it has \[\]"), (b'{"answer": "a"}', "no 'question'"),
        (b'{"question": "q", "anwser": "a"}', r"no 'answer'; it has \['anwser', 'question'\]"),
    ],
)  # fmt: skip
def test_bad_lines_name_file_and_line(tmp_path, line, problem):
    with pytest.raises(BadFile, match=rf"t\.jsonl:2: {problem}"):
        load_tasks(jsonl(tmp_path, row(), line, row()))


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n"])
def test_files_of_windows(tmp_path, newline, bom, end):
    path = tmp_path / "t.jsonl"
    lines = [json.dumps(row(f"q{n}")).encode() for n in range(3)]
    path.write_bytes(bom + newline.join(lines) + end)
    assert [task.question for task in load_tasks(path)] == ["q0", "q1", "q2"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n"])
def test_an_empty_file(tmp_path, content):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"no tasks in .*t\.jsonl"):
        load_tasks(path)


@pytest.mark.parametrize("identity", [7, "q7", 1.5, ["a", 1], ""])
def test_two_rows_of_one_id_name_both_lines(tmp_path, identity):
    for other in (row("2"), row("1", "b"), row("1", level=3)):
        path = jsonl(tmp_path, row("1", id=identity), b"", row("0"), {**other, "id": identity})
        with pytest.raises(BadFile, match=r"t\.jsonl:4: id .* is also that of line 1, which is"):
            load_tasks(path)


def test_rows_that_may_share_an_id(tmp_path):
    """Whole rows that repeat, their keys in any order; rows of two splits; no id at all."""
    backwards = dict(reversed(row("1", id=7).items()))
    tasks = load_tasks(jsonl(tmp_path, row("1", id=7), backwards, row("1", id=7)))
    assert [task.question for task in tasks] == ["1"] * 3
    assert len({task.id for task in tasks}) == 3
    splits = [row("1", id=7, split="train"), row("2", id=7, split="dev"), row("3", id=7)]
    assert len(load_tasks(jsonl(tmp_path, *splits))) == 3
    assert len(load_tasks(jsonl(tmp_path, *[row(str(n), id=None) for n in range(3)]))) == 3
    kinds = [row("1", id=1), row("2", id="1"), row("3", id=True), row("4", id=[1])]
    assert len(load_tasks(jsonl(tmp_path, *kinds))) == 4


@pytest.mark.parametrize(
    "row",
    [("q", "a"), {"question": "q", "answers": "a"}, {"q": 1, "a": 2, "meta": 3}, "qam", None,
     (3, "a", {}), ("q", 2, {}), ("q", {"target": "a"}, {})],
)  # fmt: skip
def test_rows_that_are_no_question_answer_and_meta(row):
    with pytest.raises(UserError, match=r"^task .*; give "):
        TaskSet([row])


def test_a_task_without_an_answer():
    with pytest.raises(UserError, match="task 'What\\?' has no answer"):
        TaskSet([("q", "a", {}), ("What?", [], {})])


def test_split_filters_the_rows_that_name_one(tmp_path):
    path = jsonl(tmp_path, row("1", split="train"), row("2", split="dev"), row("3"))
    assert [task.question for task in load_tasks(path, split="dev")] == ["2", "3"]
    assert load_tasks(**load_tasks(path, split="dev").spec).spec == {
        "source": str(path), "split": "dev"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        ("nowhere.jsonl", BadFile, "no such file"), ("nowhere.parquet", BadFile, "no such file"),
        ("arit", UnknownName, "did you mean 'arith'"), ("tasks.csv", UnknownName, "task source"),
        ("", UnknownName, "task source"), (".", UnknownName, "task source"),
    ],
)  # fmt: skip
def test_bad_sources(source, error, match):
    with pytest.raises(error, match=match):
        load_tasks(source)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(BadFile, match="no such file"):
        load_tasks(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    "options", [{"splt": "dev"}, {"split": "devv"}, {"n": 0}, {"n": "3"}, {"levels": [99]},
                {"levels": 3},
                {"kinds": ["smu"]}, {"n": 10**9}], ids=repr,
)  # fmt: skip
def test_bad_options_of_arith(options):
    with pytest.raises(UserError):
        load_tasks("arith", **options)


def test_bad_options_of_a_file(tmp_path):
    with pytest.raises(UserError, match="quesion"):
        load_tasks(jsonl(tmp_path, row()), quesion="problem")


def test_real_files_load(shared):
    for name, count in (
        ("math500.jsonl", 500), ("aime24.qwen25math.jsonl", 30), ("amc23.qwen25math.jsonl", 40),
        ("aime25.evalreasoning.jsonl", 30), ("olympiadbench.qwen25math.jsonl", 675),
    ):  # fmt: skip
        path = shared / "data" / name
        first = json.loads(path.read_text().splitlines()[0])
        question = next(k for k in ("question", "problem") if k in first)
        answer = next(k for k in ("answer", "final_answer") if k in first)
        tasks = load_tasks(path, question=question, answer=answer)
        assert len(tasks) == count
        assert len({task.id for task in tasks}) == count
    amc = load_tasks(shared / "data" / "amc23.qwen25math.jsonl")
    assert all(not task.answer.endswith(".0") for task in amc)


# ---- Parquet ------------------------------------------------------------------------------------


def parquet(tmp_path, rows):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")
    from pyarrow.parquet import write_table

    path = tmp_path / "t.parquet"
    write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def recipe_row(index, ground_truth, **more):
    chat = [{"role": "user", "content": f"prompt {index}"}]
    return {
        "data_source": "math", "prompt": chat, "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": "train", "index": index, "answer": "long", "question": f"q{index}"},
        **more,
    }  # fmt: skip


def test_parquet_of_the_math_recipe(tmp_path):
    kwargs = {"ground_truth": "kwargs", "question": "q of kwargs", "data_source": "math"}
    rows = [recipe_row(0, "7", env_kwargs=None), recipe_row(1, "8", env_kwargs=kwargs)]
    path = parquet(tmp_path, rows)
    tasks = load_tasks(path, split="train")
    assert [(t.question, t.answer) for t in tasks] == [("q0", "7"), ("q of kwargs", "kwargs")]
    assert tasks[0].meta == {"source": "math", "split": "train", "index": 0}
    with pytest.raises(UserError, match="no tasks"):
        load_tasks(path, split="test")


def test_parquet_of_the_search_recipe(tmp_path):
    path = parquet(tmp_path, [recipe_row(0, {"target": ["Paris", "Lutetia"]})])
    assert load_tasks(path)[0].answer == ["Paris", "Lutetia"]


def test_parquet_whose_question_is_only_in_the_prompt(tmp_path):
    rows = [recipe_row(0, "7"), recipe_row(1, "8")]
    for one in rows:
        one["extra_info"] = None
    rows[1]["prompt"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert [t.question for t in load_tasks(parquet(tmp_path, rows))] == ["prompt 0", "u"]


def test_parquet_with_a_plain_prompt(tmp_path):
    path = parquet(tmp_path, [{"prompt": "p", "reward_model": {"ground_truth": "7"}}])
    assert load_tasks(path)[0].question == "p"


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([{"x": 1}], r"t\.parquet:1: 'question' is None"),
        ([recipe_row(0, "7"), recipe_row(1, None)], r"t\.parquet:2: 'answer' is None"),
        ([recipe_row(0, "7", env_kwargs='{"question": "q"}')], r"t\.parquet:1: 'env_kwargs' is "),
        ([{"prompt": [], "reward_model": "7"}], r"t\.parquet:1: 'reward_model' is '7'"),
        ([{"prompt": [3], "reward_model": {"ground_truth": "7"}}], "'question' is 3"),
    ],
    ids=["nothing", "no answer", "json text", "text", "number"],
)  # fmt: skip
def test_bad_parquet_rows_name_file_and_row(tmp_path, rows, match):
    with pytest.raises(BadFile, match=match):
        load_tasks(parquet(tmp_path, rows))


def test_not_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(BadFile, match="not a Parquet file"):
        load_tasks(path)


def test_a_split_alone_is_that_of_the_environments_own_source():
    questions = {
        id: mas_envs.make(id, tasks={"split": "dev", "n": 4}).tasks.spec
        for id in ("search-v0", "search-single-v0", "math-v0", "vote-v0")
    }
    assert [spec["source"] for spec in questions.values()] == [
        "tinyworld", "tinyworld", "arith", "arith",
    ]  # fmt: skip
    assert all(spec["split"] == "dev" and spec["n"] == 4 for spec in questions.values())


def test_no_tasks_and_no_source_are_told():
    with pytest.raises(UserError, match="no tasks to play"):
        mas_envs.make("math-v0", tasks=TaskSet([])).reset(seed=0)
    for source in (3, None, ["a"]):
        with pytest.raises(UserError, match="task source"):
            load_tasks(source)


def test_rows_may_be_dictionaries():
    tasks = TaskSet([{"question": "q", "answer": ["a", "b"], "level": 2}])
    assert tasks[0] == TaskSet([("q", ["a", "b"], {"level": 2})])[0]
    assert repr(tasks).startswith("TaskSet of 1: ")
