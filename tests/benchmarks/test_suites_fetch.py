"""`mas-bench fetch` against an imitated hub and file store: faults, mistakes, and what it says."""

import hashlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.suites import fetching, fingerprint, load_suite, spec, suite, suites, training
from benchmarks.suites.fetching import fetch_suite
from mas_envs.errors import UserError
from mas_envs.tasks import load_tasks
from mas_train import cli as mas_train_cli
from mas_train.config import load
from mas_train.environment import check_run_golds, make_env, run_tasks
from mas_train.recipes import recipe, recipes
from retrievers import RetrieverDown, RetrieverError
from tests.end_to_end.test_docs import DOCS
from tests.retrievers.fetch_cases import partial, until
from tests.retrievers.test_fetch_hub import COMMIT, Hub

AIME = "".join(
    json.dumps({"problem": f"What is {i} + 1? {'.' * 40}", "answer": f"{i + 1:03}"}) + "\n"
    for i in range(30)
).encode()
QUIZ = "".join(
    json.dumps({"id": f"test_{i}", "question": f"Who was number {i}?", "golden_answers": ["Ann"]})
    + "\n"
    for i in range(125)
).encode()
FLASH = "RUC-NLPIR/FlashRAG_datasets"


def parquet(rows):
    pyarrow, file = pytest.importorskip("pyarrow"), io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


class Store(Hub):
    """The hub, and files by repository, commit and path as GitHub's raw server has them."""

    def answer(self, handler, origin):
        path = handler.path.partition("?")[0].lstrip("/")
        if path not in self.raw or self.status != 200:
            return super().answer(handler, origin)
        body, asked = self.raw[path], handler.headers["Range"]
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.gets.append((path, start))
        if self.fault and self.fault(handler, path, body, start):
            return None
        tags = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        return self.reply(handler, 206, body[start:], tags)


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("retrievers.fetch.hub.PAUSE_S", 0.002)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub = Store({})
    hub.raw = {}
    yield hub
    hub.stop()


@pytest.fixture
def aime(hub, monkeypatch):
    """AIME 2024 with own problems: its pinned copy, its hash, and a copy on the hub."""
    real = suite("aime24")
    origin = msgspec.structs.replace(
        real.origin, bytes=len(AIME), sha256=hashlib.sha256(AIME).hexdigest()
    )
    path = f"{origin.repo}/{origin.commit}/{origin.path}"
    hub.raw = {path: AIME}
    hub.files = {real.hub.id: {"README.md": b"about", "test.jsonl": AIME}}
    own = msgspec.structs.replace(real, origin=origin, sha256=None)
    known = {**suites(), "aime24": own}
    monkeypatch.setattr(spec, "suites", lambda: known)
    return path


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def trainer(*args):
    return CliRunner().invoke(mas_train_cli.app, list(args))


def fetched(hub, tmp_path, *args):
    return bench("fetch", *args, "--to", tmp_path / "suites", "--endpoint", hub.url)


def test_the_pinned_copy_and_a_second_fetch_only_checks(hub, aime, tmp_path):
    result = fetched(hub, tmp_path, "aime24")
    assert result.exit_code == 0, result.output
    assert "QwenLM/Qwen2.5-Math@a45202bd16f1" in result.stdout and "pinned by" in result.stdout
    assert "aime24: licence: problems (c) Mathematical" in result.stderr
    assert (tmp_path / "suites" / "aime24.jsonl").read_bytes() == AIME
    assert len(load_suite("aime24", tmp_path / "suites")) == 30
    assert hub.gets == [(aime, 0)]
    assert fetched(hub, tmp_path, "aime24").exit_code == 0
    assert hub.gets == [(aime, 0)]
    assert hub.tokens["hub"] == {None}, "the hub's token is the hub's alone"


def test_an_interrupted_fetch_continues(hub, aime, tmp_path):
    hub.fault = lambda handler, name, body, start: hub.begin(handler, body, start, 500) or True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retrievers.fetch.hub.ATTEMPTS", 1)
        broken = fetched(hub, tmp_path, "aime24")
    assert broken.exit_code == 1 and "500 of" in broken.stderr and "bytes are kept" in broken.stderr
    hub.fault = None
    assert fetched(hub, tmp_path, "aime24").exit_code == 0
    assert hub.gets == [(aime, 0), (aime, 500)]


def test_other_bytes_than_the_pinned_ones_are_refused(hub, aime, tmp_path):
    hub.raw = {aime: AIME.replace(b"007", b"008")}
    refused = fetched(hub, tmp_path, "aime24")
    assert refused.exit_code == 1 and "damaged: SHA256" in refused.stderr
    assert not list((tmp_path / "suites").iterdir())


def test_from_the_hub_it_says_unpinned_and_compares_the_content(hub, aime, monkeypatch, tmp_path):
    result = fetched(hub, tmp_path, "aime24", "--from-hub")
    assert result.exit_code == 0, result.output
    assert f"math-ai/aime24@{COMMIT}, revision unpinned" in result.stdout
    assert "content unpinned; its SHA-256 is" in result.stderr
    assert hub.tokens["hub"] == {"Bearer hf_secret"}
    pinned = msgspec.structs.replace(suite("aime24"), sha256="f" * 64)
    monkeypatch.setattr(spec, "suites", lambda: {**suites(), "aime24": pinned})
    other = fetched(hub, tmp_path, "aime24", "--from-hub")
    assert other.exit_code == 1
    assert "is NOT the canonical ffffffffffff" in other.stderr
    assert "leave out --from-hub" in other.stderr


def test_a_pinned_revision_is_asked_for(hub, aime, tmp_path):
    one = suite("aime24")
    pinned = msgspec.structs.replace(one.hub, revision="a" * 40)
    paths = []
    answer = hub.answer
    hub.answer = lambda handler, origin: paths.append(handler.path) or answer(handler, origin)
    found = fetch_suite(
        msgspec.structs.replace(one, hub=pinned), tmp_path, from_hub=True, endpoint=hub.url
    )
    assert found.source.endswith(", pinned") and f"/revision/{'a' * 40}" in paths[0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [(29, "29 problems; AIME 2024 has 30"), (0, "has no question")],
)
def test_a_wrong_count_is_refused(hub, aime, tmp_path, rows, message):
    lines = AIME.splitlines(keepends=True)[:rows]
    hub.files = {"math-ai/aime24": {"test.jsonl": b"".join(lines)}}
    refused = fetched(hub, tmp_path, "aime24", "--from-hub")
    assert refused.exit_code == 2 and message in refused.stderr


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "accept its terms on its page, and set HF_TOKEN"),
        (403, "accept its terms on its page, and set HF_TOKEN"),
        (404, "check name, revision and endpoint"),
    ],
)
def test_a_gated_or_missing_data_set_is_one_line_with_the_fix(hub, aime, tmp_path, status, words):
    hub.status = status
    refused = fetched(hub, tmp_path, "aime24", "--from-hub")
    assert refused.exit_code == 2 and "math-ai/aime24" in refused.stderr
    assert f"HTTP {status}" in refused.stderr and words in refused.stderr


def test_qa_rows_as_the_hub_has_them(hub, tmp_path):
    hub.files = {FLASH: {"bamboogle/test.jsonl": QUIZ, "nq/test.jsonl": b"{}\n"}}
    found = fetch_suite(suite("bamboogle"), tmp_path, from_hub=True, endpoint=hub.url)
    assert found.path == tmp_path / "bamboogle.jsonl"
    with pytest.warns(UserWarning, match="not the canonical"):
        assert load_suite("bamboogle", tmp_path)[3].answer == ["Ann"]


def test_parquet_is_read_and_not_even_fetched_where_nothing_reads_it(
    hub, aime, tmp_path, monkeypatch
):
    rows = [json.loads(line) for line in AIME.splitlines()]
    hub.files = {"math-ai/aime24": {"data/test-00000-of-00001.parquet": parquet(rows)}}
    found = fetch_suite(suite("aime24"), tmp_path / "a", from_hub=True, endpoint=hub.url)
    assert found.path.name == "aime24.parquet"
    (tmp_path / "plain.jsonl").write_bytes(AIME)
    both = (tmp_path / "a", tmp_path / "plain.jsonl")
    assert len({fingerprint(load_suite("aime24", data)) for data in both}) == 1
    hub.gets.clear()
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"aime24.*pip install 'mas-gym\[parquet\]'"):
        fetch_suite(suite("aime24"), tmp_path / "b", from_hub=True, endpoint=hub.url)
    assert hub.gets == []


def test_a_glob_that_names_several_files_is_refused(hub, aime, tmp_path):
    hub.files = {"math-ai/aime24": {"test-0.jsonl": AIME, "test-1.jsonl": AIME}}
    with pytest.raises(RetrieverError, match=r"is to name one .*; it names test-0\.jsonl, test-1"):
        fetch_suite(suite("aime24"), tmp_path, from_hub=True, endpoint=hub.url)


def test_what_cannot_be_fetched(hub, tmp_path):
    for name, words in (
        ("arith", "embedded; there is nothing to fetch"),
        ("aime", "unknown suite 'aime'; did you mean 'aime2"),
        ("drmas_maths", "did you mean 'drmas_math'"),
    ):
        refused = fetched(hub, tmp_path, name)
        assert refused.exit_code == 2 and words in refused.stderr
    refused = fetched(hub, tmp_path, "musique_500", "--from-hub")
    assert refused.exit_code == 2 and "names no data set of the hub; drop" in refused.stderr
    with pytest.raises(RetrieverDown, match="does not answer"):
        fetch_suite(suite("popqa"), tmp_path, endpoint="http://127.0.0.1:1")


def test_every_suite_that_reads_a_file_says_where_to_get_it():
    for one in [*suites().values(), *training.training_sets().values()]:
        assert one.tasks is not None or one.hub is not None or one.origin is not None
        assert one.origin is None or Path(one.origin.path).suffix in (".jsonl", ".json")


ADVICE = "\nLet's think step by step and output the final answer within \\boxed{}."


def math_rows(count):
    """As the data set of the math recipes has them."""
    return [
        {"prompt": [{"role": "user", "content": f"What is {i} times two?{ADVICE}"}],
         "reward_model": {"ground_truth": str(2 * i), "style": "rule"}}
        for i in range(count)
    ]  # fmt: skip


def search_rows(count):
    """As the data set of the search recipes has them."""
    return [
        {"id": f"train_{i}", "question": f"who was number {i}?", "golden_answers": ["Ann", "Bo"],
         "prompt": [{"role": "user", "content": f"Answer. Question: who was number {i}?"}],
         "reward_model": {"ground_truth": {"target": ["Ann", "Bo"]}, "style": "rule"}}
        for i in range(count)
    ]  # fmt: skip


def test_the_training_set_of_the_math_recipes(hub, aime, tmp_path):
    rows = math_rows(400)
    leaked = json.loads(AIME.splitlines()[4])["problem"]
    rows.append(rows[0] | {"prompt": [{"role": "user", "content": leaked + ADVICE}]})
    rows.append(rows[0] | {"reward_model": {"ground_truth": "", "style": "rule"}})
    hub.files["aaabiao/dapo_filter"] = {"train.parquet": parquet(rows)}
    result = fetched(hub, tmp_path, "drmas_math", "aime24")  # held against it whatever the order
    assert result.exit_code == 0, result.output
    assert "revision unpinned" in result.stdout and "1 overlap, 1 left out" in result.stdout
    held_against = result.stderr.partition("not held against")[2]
    assert "aime25" in held_against and "aime24" not in held_against
    out = tmp_path / "suites" / "drmas_math_train.jsonl"
    train, dev = (load_tasks(out, split=split) for split in ("train", "dev"))
    assert len(train) + len(dev) == 400 and 1 <= len(dev) <= 20
    assert train[0].question == "What is 0 times two?" and train[0].answer == "0"
    assert not {t.question for t in train} & {t.question for t in dev}
    assert load_tasks(out, split="overlap")[0].question == leaked


def test_the_training_set_of_the_search_recipes(hub, tmp_path):
    hub.files = {"PeterJinGo/nq_hotpotqa_train": {"train.parquet": parquet(search_rows(100))}}
    assert fetched(hub, tmp_path, "drmas_search").exit_code == 0
    tasks = load_tasks(tmp_path / "suites" / "drmas_search_train.jsonl", split="train")
    assert tasks[0].question == "who was number 0?" and tasks[0].answer == ["Ann", "Bo"]


def test_dev_has_each_question_once_and_its_first_ones_are_a_sample(hub, tmp_path):
    rows = search_rows(4000)
    hub.files = {"PeterJinGo/nq_hotpotqa_train": {"train.parquet": parquet(rows + rows[:2000])}}
    assert fetched(hub, tmp_path, "drmas_search").exit_code == 0
    out = tmp_path / "suites" / "drmas_search_train.jsonl"
    train, dev = (load_tasks(out, split=split) for split in ("train", "dev"))
    numbers = [int(task.question.removeprefix("who was number ")[:-1]) for task in dev]
    assert len(set(numbers)) == len(numbers) and 50 < len(numbers) < 120  # 80 ± 9
    assert len({task.question for task in train}) == 4000 - len(numbers)
    assert len(train) == 6000 - len(numbers) - sum(number < 2000 for number in numbers)
    first = numbers[: len(numbers) // 2]
    late = sum(number >= 2000 for number in first)
    assert len(first) / 4 < late < 3 * len(first) / 4, "in the file's order it would be none"


READING = [name for name in sorted(recipes()) if "drmas_" in recipe(name).read_text("utf-8")]


def test_what_fetch_writes_is_what_the_recipes_load(hub, aime, tmp_path, monkeypatch):
    """With the command that the error names, in the folder where it is shown."""
    leaked = json.loads(AIME.splitlines()[4])["problem"]
    math = math_rows(400)
    math.append(math[0] | {"prompt": [{"role": "user", "content": leaked + ADVICE}]})
    hub.files |= {
        "aaabiao/dapo_filter": {"train.parquet": parquet(math)},
        "PeterJinGo/nq_hotpotqa_train": {"train.parquet": parquet(search_rows(400))},
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert bench("fetch", "aime24", "--to", "suites", "--endpoint", hub.url).exit_code == 0
    for kind in ("math", "search"):
        refused = trainer(
            "check", f"{kind}_{'qwen3_4b' if kind == 'math' else 'qwen2.5_3b'}_shared"
        )
        assert refused.exit_code == 2
        [command] = re.findall(r"`mas-bench (fetch [^`]*)`", refused.output)
        assert bench(*command.split()).exit_code == 0
    assert len(READING) == 13
    for name in READING:
        config = load(recipe(name))
        train, dev = run_tasks(config)
        check_run_golds(make_env(config), train, dev)
        asked = [{task.question for task in tasks} for tasks in (train, dev)]
        assert not asked[0] & asked[1] and len(asked[0] | asked[1]) == 400
        assert leaked not in asked[0] | asked[1]
        assert {len(train), len(dev)} == set(map(len, asked)) and len(dev) < 25 < len(train)
        assert (train[0].answer == ["Ann", "Bo"]) == name.startswith("search")
        assert trainer("check", name).exit_code == 0


def test_a_recipe_takes_the_references_parquet_as_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for split in ("train", "test"):
        rows = [row | {"extra_info": {"split": split, "index": 0}} for row in math_rows(9)]
        (tmp_path / f"{split}.parquet").write_bytes(parquet(rows))
    page = (DOCS / "training.md").read_text("utf-8").replace("test_sampled", "test")
    sets = re.findall(r"--set 'tasks\.\w+={source: [^']*'", page)
    assert len(sets) == 2
    checked = trainer("check", "math_qwen3_4b_shared", *shlex.split(" ".join(sets)))
    assert checked.exit_code == 0, checked.output


def test_a_training_set_without_the_expected_columns(hub, tmp_path):
    hub.files = {"PeterJinGo/nq_hotpotqa_train": {"train.parquet": parquet([{"q": "Who?" * 99}])}}
    refused = fetched(hub, tmp_path, "drmas_search")
    assert refused.exit_code == 2 and "no training question (question or golden" in refused.stderr


def test_a_killed_process_leaves_what_the_next_one_continues(hub, aime, tmp_path):
    """As above, by SIGKILL of a process of its own in the middle of the body."""

    def stall(handler, name, body, start):
        hub.begin(handler, body, start, 700)
        return hub.released.wait(30)

    hub.fault = stall
    origin = msgspec.to_builtins(suite("aime24").origin)
    program = (
        "import sys, json, pathlib, msgspec\n"
        "from benchmarks.suites import suite\n"
        "from benchmarks.suites.fetching import fetch_suite\n"
        "from benchmarks.suites.spec import Origin\n"
        "origin = msgspec.convert(json.loads(sys.argv[1]), Origin)\n"
        "spec = msgspec.structs.replace(suite('aime24'), origin=origin)\n"
        "fetch_suite(spec, pathlib.Path(sys.argv[2]), endpoint=sys.argv[3])\n"
    )
    out = tmp_path / "suites"
    child = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(origin), str(out), hub.url],
        stderr=subprocess.PIPE,
    )
    until(lambda: list(out.glob("*.part")) and partial(out).stat().st_size == 700)
    child.kill()
    child.communicate(timeout=20)
    hub.released.set()
    hub.fault = None
    assert fetched(hub, tmp_path, "aime24").exit_code == 0
    assert hub.gets == [(aime, 0), (aime, 700)]
