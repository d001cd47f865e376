"""Honest runs of every kind come to the right status, and nobody is suspected for nothing."""

import json
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest

from leaderboard.declared import Declared
from leaderboard.pack import pack
from leaderboard.verify import verify
from mas_envs.errors import BadFile, UserError
from mas_envs.prompts import PROMPT_SETS
from tests.leaderboard.conftest import Forger, play


@pytest.fixture
def packed(tmp_path):
    """Packs a run and verifies it; gives the result."""

    def packed(run, data=None, **declared):
        pack(run, tmp_path / "it.zip", system="s", team="t", declared=Declared(**declared))
        return verify(tmp_path / "it.zip", data)

    return packed


def told(result, name):
    return next(check for check in result.checks if check.name == name)


def own_prompts(folder, name):
    lines = (PROMPT_SETS / "math" / "default.toml").read_text().splitlines()
    (folder / name).write_text("\n".join(line for line in lines if not line.startswith("name =")))
    return folder / name


# ---- prompts and suites --------------------------------------------------------------------------


def test_prompts_of_one_role(sums, packed, tmp_path):
    own = own_prompts(tmp_path, "mine.toml")
    play(sums, tmp_path / "run", "-k", "1", "--prompts", f"solver={own}")
    own.unlink()
    result = packed(tmp_path / "run")
    assert result.status == "recomputed", result.reasons
    with zipfile.ZipFile(tmp_path / "it.zip") as archive:
        assert "prompts.solver.toml" in archive.namelist()
        assert str(tmp_path) not in archive.read("manifest.json").decode()


def test_prompts_that_are_changed_or_lost(sums, packed, tmp_path):
    own = own_prompts(tmp_path, "mine.toml")
    play(sums, tmp_path / "run", "-k", "1", "--prompts", f"solver={own}")
    packed(tmp_path / "run")
    forger = Forger(tmp_path / "it.zip", tmp_path)
    with zipfile.ZipFile(tmp_path / "it.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    kept = members["prompts.solver.toml"]
    members["prompts.solver.toml"] = kept.replace(b"the", b"a")
    assert told(verify(forger.zip(members)), "members").result == "fail"
    members["prompts.solver.toml"] = b"\xff not TOML"
    assert "cannot be made" in told(verify(forger.zip(members)), "settings").detail
    del members["prompts.solver.toml"]
    lost = verify(forger.zip(members))
    assert told(lost, "members").result == "fail"
    assert "neither shipped nor in the submission" in told(lost, "settings").detail
    members |= {"prompts.solver.toml": kept, "prompts.judge.toml": b"x"}
    assert "'prompts.judge.toml'" in told(verify(forger.zip(members)), "members").detail


@pytest.fixture(scope="module")
def own_suite(tmp_path_factory):
    """A suite of a file of one's own, and a run of it."""
    folder = tmp_path_factory.mktemp("own")
    rows = [{"question": f"{n}+{n + 3}=?", "answer": str(2 * n + 3)} for n in range(6)]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.yaml").write_text("mine: {title: Mine, data: mine.jsonl}\n")
    play(f"{folder / 'mine.yaml'}#mine", folder / "run", "-k", "2")
    return folder


def test_a_suite_of_ones_own_is_self_reported(own_suite, packed, tmp_path):
    for data in (None, tmp_path):
        result = packed(own_suite / "run", data)
        assert result.status == "self-reported"
        assert {reason.partition(":")[0] for reason in result.reasons} == {"suite", "questions"}
    assert packed(own_suite / "run", own_suite / "mine.yaml").status == "recomputed"


def test_a_file_that_cannot_be_the_suites(own_suite, sums_submission, packed, tmp_path):
    with pytest.raises(UserError, match="'mine' is no suite that comes with mas-gym"):
        packed(own_suite / "run", own_suite / "mine.jsonl")
    with pytest.raises(UserError, match="unknown suite"):
        verify(sums_submission, own_suite / "mine.yaml")
    with pytest.raises(UserError, match="is embedded and reads no file"):
        verify(sums_submission, own_suite / "mine.jsonl")
    with pytest.raises(BadFile, match=r"none\.yaml"):
        packed(own_suite / "run", own_suite / "none.yaml")


def test_the_name_of_a_suite_is_never_a_file(own_suite, sums_forger):
    sums_forger.manifest["suite"]["name"] = f"{own_suite / 'mine.yaml'}#mine"
    result = verify(sums_forger.write(), own_suite)
    assert told(result, "suite").result == "unchecked"


def aime(folder):
    """Thirty questions that only look like a suite whose file is not shipped."""
    rows = [{"problem": f"{n}+{n + 3}=?", "answer": str(2 * n + 3), "id": n} for n in range(30)]
    (folder / "aime24.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.filterwarnings("ignore::benchmarks.suites.SuiteWarning")
def test_data_is_a_file_a_folder_or_a_folder_without_it(packed, tmp_path):
    """The content is not the canonical one, which only the check of the suite says."""
    (tmp_path / "suites").mkdir()
    aime(tmp_path / "suites")
    play("aime24", tmp_path / "run", "-k", "1", "--data", str(tmp_path / "suites"))
    for data in (tmp_path / "suites", tmp_path / "suites" / "aime24.jsonl"):
        result = packed(tmp_path / "run", data)
        assert [c.name for c in result.checks if c.result == "fail"] == ["suite"]
        assert "is not the canonical" in told(result, "suite").detail
        assert told(result, "questions").result == "pass"
    nothing = packed(tmp_path / "run", tmp_path)  # the hash is known, and gives it away
    assert [c.name for c in nothing.checks if c.result == "fail"] == ["suite"]


# ---- what is declared of training ----------------------------------------------------------------


def test_contamination_as_it_is_declared(sums_run, packed, tmp_path):
    result = packed(sums_run)
    assert told(result, "contamination").result == "unchecked"
    result = packed(sums_run, untrained=True)
    assert "trained on nothing" in told(result, "contamination").detail
    assert told(result, "contamination").result == "pass"
    result = packed(sums_run, training_data=("web crawl", "more"))
    assert told(result, "contamination").result == "unchecked"
    assert "web crawl, more" in told(result, "contamination").detail
    clean = tmp_path / "clean.jsonl"
    clean.write_text('{"question": "How many towns lie by a lake?", "answer": "4"}\n' * 3)
    result = packed(sums_run, training_files=(clean,))
    assert told(result, "contamination").result == "pass"
    assert "3 declared training rows" in told(result, "contamination").detail
    asked = next(iter(Forger(tmp_path / "it.zip", tmp_path).episodes))["question"]
    (tmp_path / "dirty.jsonl").write_text(json.dumps({"question": asked, "answer": "1"}) + "\n")
    result = packed(sums_run, training_files=(clean, tmp_path / "dirty.jsonl"))
    assert told(result, "contamination").result == "warning"
    assert "dirty.jsonl: 1 of 24 questions" in told(result, "contamination").detail
    assert result.status == "recomputed"  # what is declared is not held against anybody


# ---- the same texts, and times -------------------------------------------------------------------


def constant(request):
    return r"<verify>approve</verify> \boxed{7}"


@pytest.mark.parametrize(("temperature", "result"), [("0.6", "warning"), ("0", "pass")])
def test_samples_that_are_all_the_same(sums, packed, tmp_path, temperature, result):
    policy = f"scripted:{__name__}:constant"
    play(sums, tmp_path / "run", "-k", "3", "--temperature", temperature, policy=policy)
    found = packed(tmp_path / "run")
    check = told(found, "repeats")
    assert check.result == result and found.status == "recomputed"
    assert ("48 of 72 samples repeat another one" in check.detail) == (result == "warning")


def an_hour_early(forger):
    for episode in forger.episodes[:5]:
        episode["started"] -= 3600
    return "5 of 48 conversations were in no session"


def an_hour_long(forger):
    forger.episodes[0]["seconds"] = 7200.0
    return "1 of 48 conversations were in no session"


def faster_than_any_machine(forger):
    turn = forger.episodes[0]["events"][0]
    turn.update(response_tokens=4000, seconds=0.01)
    return "more than 20,000 tokens a second"


def negative_seconds(forger):
    forger.episodes[0]["seconds"] = -5.0
    return "take less than no time"


def turns_longer_than_their_conversation(forger):
    for episode in forger.episodes:
        episode["events"][0]["seconds"] = 30.0
    return "the turns take 1,4"


def too_many_at_a_time(forger):
    (session,) = forger.manifest["sessions"]
    session.update(concurrency=1, started=session["started"] - 50, finished=session["started"])
    for episode in forger.episodes:
        episode["seconds"] = 40.0
        episode["started"] = session["started"] + 5
    return "do not fit into sessions"


@pytest.mark.parametrize(
    "change",
    [an_hour_early, an_hour_long, faster_than_any_machine, negative_seconds,
     turns_longer_than_their_conversation, too_many_at_a_time],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_impossible_times_are_remarked_and_reject_nobody(sums_forger, change):
    expected = change(sums_forger)
    result = verify(sums_forger.write())
    check = told(result, "timing")
    assert check.result == "warning" and expected in check.detail, check
    assert result.status == "recomputed"


@pytest.mark.parametrize(
    "sessions",
    [[], [{}], [{"started": None}], [{"started": "soon", "finished": []}],
     [{"started": True, "concurrency": "many"}], [{"started": 0, "concurrency": 10**400}]],
)  # fmt: skip
def test_sessions_that_say_nothing_of_use(sums_forger, sessions):
    sums_forger.manifest["sessions"] = sessions
    assert verify(sums_forger.write()).status == "recomputed"


def test_many_at_a_time_are_no_wonder(sums, packed, tmp_path):
    play(sums, tmp_path / "run", "-k", "8", "--concurrency", "64")
    result = packed(tmp_path / "run")
    assert told(result, "timing").result == "pass" and result.status == "recomputed"


SLOW_ADDER = """
import asyncio
from benchmarks.policies import adder

async def act(request):
    await asyncio.sleep(0.02)
    return adder(request)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default::mas_envs.episodes.store.TornFrame")
def test_a_run_that_was_killed_and_continued_is_like_any_other(tmp_path, packed):
    (tmp_path / "slow_adder.py").write_text(SLOW_ADDER)
    arguments = ["run", "arith", "--policy", "scripted:slow_adder:act", "-k", "1"]
    arguments += ["--concurrency", "8", "--out", "run"]
    program = f"import sys; sys.argv[1:] = {arguments}; from benchmarks.cli import app; app()"

    def start():
        return subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip

    killed, end = start(), time.monotonic() + 60
    while not any(f.stat().st_size for f in tmp_path.glob("run/episodes/episodes-*")):
        assert killed.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    again = start()
    assert again.wait(60) == 0, again.communicate()
    again.communicate()
    result = packed(tmp_path / "run")
    assert len(result.manifest.sessions) == 2 and result.manifest.sessions[0]["finished"] is None
    assert result.status == "recomputed"
    assert {c.name for c in result.checks if c.result != "pass"} == {"contamination"}
    shutil.rmtree(tmp_path / "run")
