"""What a hostile file costs: measured in a process whose address space is limited."""

import hashlib
import io
import json
import random
import re
import struct
import subprocess
import sys
import zipfile

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from leaderboard.archive import Archive, Limits
from leaderboard.cli import app
from leaderboard.manifest import EPISODES, MANIFEST
from leaderboard.verify import verify
from mas_envs import spec
from mas_envs.errors import BadFile, UserError
from tests.leaderboard.conftest import Forger, compress
from tests.leaderboard.forgeries import grade_call, last_draft

MEMORY = """
import resource, sys
from pathlib import Path
from leaderboard.verify import verify
from mas_envs.errors import UserError
import leaderboard.examine, leaderboard.environment, mas_envs.math.env, mas_envs.grading.math_answer

def peak():
    # Not getrusage: after an exec it still tells the peak of the process that forked.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
before = peak()
try:
    result = verify(Path(sys.argv[1]), processes=1)
    said = result.status + " " + "; ".join(result.reasons)
except UserError as error:
    said = "refused " + str(error)
print(peak() - before)
print(said)
"""


def cost(path):
    """(MiB that verifying took, what was said in one line) within 1 GiB of address space."""
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    memory, said = done.stdout.split("\n", 1)
    assert len(said.strip().splitlines()) == 1
    return int(memory), said.strip()


def stream(block, count, level=1):
    compressor = zstandard.ZstdCompressor(level=level).compressobj()
    return b"".join([*(compressor.compress(block) for _ in range(count)), compressor.flush()])


def rehashed(forger, content):
    """The zip with these episodes, of which the manifest knows."""
    about = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    forger.manifest["members"][EPISODES] = about
    return forger.zip({MANIFEST: json.dumps(forger.manifest), EPISODES: content})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "size", "expected"),
    [
        (b" " * 2**20, 10 * 2**30, "a bomb|a line of more than"),
        (random.Random(0).randbytes(2**18).hex().encode(), 2**25, "a line of more than"),
        (b"[]," * 2**18, 2**30, "a bomb|values|a line of more than"),
        (b"[]\n" * 2**18, 2**30, "a bomb"),
    ],
    ids=["spaces", "noise", "values", "lines"],
)
def test_streams_without_end(sums_forger, line, size, expected):
    memory, said = cost(rehashed(sums_forger, stream(line, size // len(line))))
    if said.startswith("rejected"):  # of short lines no more are read than may be samples
        assert b"\n" in line and "more than 24 × 2 episodes" in said
    else:
        assert said.startswith("refused") and re.search(expected, said), said
    assert memory < 96


def value_lines(episode):
    """Lines as large in memory as they may be, by kind."""
    whole = json.dumps(episode).encode()
    yield b"lists", whole.replace(b'"info": {', b'"info": {"a": [' + b"[]," * 490_000 + b"0],")
    yield (
        b"texts",
        whole.replace(b'"info": {', b'"info": {"a": [' + b'"\xc3\xa9",' * 900_000 + b"0],"),
    )
    yield (
        b"wide",
        whole.replace(b'"text": "', b'"text": "' + "\N{GRINNING FACE}".encode() + b"x" * 2**23, 1),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_lines_as_large_as_they_may_be(sums_forger, number):
    lines = [json.dumps(episode).encode() for episode in sums_forger.episodes]
    lines[0] = list(value_lines(sums_forger.episodes[0]))[number][1]
    assert 2**20 < len(lines[0]) < 2**24
    memory, said = cost(rehashed(sums_forger, compress(lines)))
    assert said.startswith("rejected") and "line 1" in said and memory < 300, memory


def changed_directory(content, offset, value):
    """The first entry of the directory with other bytes at `offset`."""
    place = content.index(b"PK\x01\x02") + offset
    return content[:place] + value + content[place + len(value) :]


def damaged(forger, content, match):
    path = forger.folder / "damaged.zip"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=match):
        verify(path)


def test_zip64_that_claims_ten_gigabytes(sums_forger):
    content = sums_forger.write().read_bytes()
    info = struct.pack("<HHQQ", 1, 16, 10 * 2**30, 10 * 2**30)
    place = content.index(b"PK\x01\x02")
    extra = content.index(MANIFEST.encode(), place) + len(MANIFEST)
    forged = content[:extra] + info + content[extra:]
    forged = changed_directory(forged, 20, b"\xff" * 8)  # both sizes: see the extra field
    forged = changed_directory(forged, 30, struct.pack("<H", len(info)))
    size = struct.unpack("<I", content[-10:-6])[0] + len(info)
    forged = forged[:-10] + struct.pack("<I", size) + forged[-6:]
    damaged(sums_forger, forged, f"{10 * 2**30} bytes; at most")


def test_an_encrypted_member(sums_forger):
    content = sums_forger.write().read_bytes()
    damaged(sums_forger, changed_directory(content, 8, struct.pack("<H", 1)), "is encrypted")


@pytest.mark.parametrize("method", [1, 9, 12, 14, 93, 99])
def test_unusual_compression(sums_forger, method):
    content = sums_forger.write().read_bytes()
    forged = changed_directory(content, 10, struct.pack("<H", method))
    damaged(sums_forger, forged, "compressed in an unusual way")


def test_junk_before_and_behind(sums_forger):
    content = sums_forger.write().read_bytes()
    damaged(sums_forger, b"#!/bin/sh\nexit\n" + content, "does not lie behind")
    damaged(sums_forger, content + b"\n", "no plain end record")
    damaged(sums_forger, content + content, "does not lie behind|damaged")


def test_members_that_share_their_bytes(sums_forger):
    """Two names for one kernel, as the best bombs have it."""
    content = sums_forger.write().read_bytes()
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 4)
    forged = content[: second + 42] + struct.pack("<I", 0) + content[second + 46 :]
    damaged(sums_forger, forged, "does not lie behind")


def test_a_zip_within_itself(sums_forger):
    inner = sums_forger.write().read_bytes()
    path = sums_forger.zip({MANIFEST: json.dumps(sums_forger.manifest), EPISODES: inner})
    with pytest.raises(BadFile, match="damaged"):
        verify(path)
    path = sums_forger.zip({MANIFEST: inner, EPISODES: inner})
    with pytest.raises(BadFile, match="not a manifest"):
        verify(path)


NAMES = ["manifest.json\0.txt", "Manifest.json", "mаnifest.json", "\u202enosj", "prompts.é.toml",
         "prompts..toml", "prompts.a/b.toml", "a" * 300]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_look_like_ours(sums_forger, name):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, "{}")
        archive.writestr(EPISODES, b"")
    path = sums_forger.folder / "names.zip"
    path.write_bytes(out.getvalue())
    with pytest.raises(BadFile) as caught:
        verify(path)
    assert len(str(caught.value).splitlines()) == 1


def schema_problem(forger, change):
    lines = [json.dumps(episode) for episode in forger.episodes]
    lines[0] = change(lines[0])
    result = verify(forger.write([line.encode() for line in lines]))
    check = next(check for check in result.checks if check.name == "schema")
    assert check.result == "fail" and "line 1" in check.detail, check
    assert result.status == "rejected" and "\n" not in check.detail


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', "1" * 5000, "[" * 150 + "]" * 150,
     '{"a":' * 150 + "1" + "}" * 150, "[" * 100_000, '"\x00"', "truE", "'a'", "01", "1,"],
    ids=lambda value: value[:12],
)  # fmt: skip
def test_values_that_no_run_stores(sums_forger, value):
    schema_problem(sums_forger, lambda line: line.replace('"info": {', f'"info": {{"a": {value},'))


NUMBERS = ["1e308", "-1", "9" * 19, "9" * 30, "true", "null", '"1"']
KEYS = ["sample", "group", "seed", "step", "index", "batch", "seconds", "reward", "max_tokens",
        "temperature", "prompt_tokens"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", KEYS)
def test_numbers_in_every_place(sums_forger, key, number):
    """Refused, caught or without meaning; never an exception."""
    lines = [json.dumps(episode) for episode in sums_forger.episodes]
    lines[0] = re.sub(rf'"{key}": [^,}}]+', f'"{key}": {number}', lines[0], count=1)
    result = verify(sums_forger.write([line.encode() for line in lines]))
    told = msgspec.json.encode([check._asdict() for check in result.checks])
    assert b"\\u001b" not in told


def test_a_key_that_is_there_twice_counts_once(sums_forger):
    """The last one, for whoever reads it: an episode is what our decoder reads in it."""
    lines = [json.dumps(episode) for episode in sums_forger.episodes]
    lines[0] = '{"reward": 1.0, "gold": "12", ' + lines[0][1:]
    assert verify(sums_forger.write([line.encode() for line in lines])).status == "recomputed"
    lines[0] = lines[0][:-1] + ', "gold": "12"}'
    assert verify(sums_forger.write([line.encode() for line in lines])).status == "rejected"


def test_texts_that_would_move_a_cursor(sums_forger):
    """Escape codes, markup and right-to-left marks come out harmless."""
    evil = "\x1b[2J\x1b]0;owned\x07[red]\u202e<script>alert(1)</script>"
    sums_forger.episodes[0]["prompts"] = evil
    last_draft(sums_forger.episodes[1])["model"] = evil
    shown = CliRunner().invoke(app, ["verify", str(sums_forger.write())], color=True)
    assert shown.exit_code == 1
    assert "\x1b]" not in shown.output and "\x1b[2J" not in shown.output
    assert "\x07" not in shown.output and "\u202e" not in shown.output


BOMBS = [r"\boxed{9^{9^{9^{9^9}}}}", r"\boxed{" + "{" * 20_000 + "1" + "}" * 20_000 + "}",
         r"\boxed{" + "(x+1)^{99999}" * 50 + "}", r"\boxed{\frac{1}{" + "9" * 100_000 + "}}",
         r"\boxed{1000000000!!}", r"\boxed{" + r"\sqrt{" * 3000 + "2" + "}" * 3000 + "}",
         r"\boxed{__import__('os').system('true')}"]  # fmt: skip


@pytest.mark.parametrize("answer", BOMBS, ids=lambda answer: answer[:24])
def test_answers_that_would_hang_a_grader(sums_forger, answer):
    """They are graded, by our limits: as something else than was told."""
    episode = sums_forger.find(lambda e: e["reward"] == 1.0)
    last_draft(episode).update(text=answer)
    grade_call(episode)["args"]["response"] = answer
    result = verify(sums_forger.write())
    assert result.status == "rejected"
    assert {"grades", "replay"} & {c.name for c in result.checks if c.result == "fail"}


def test_prompts_that_would_hang_their_reader(sums_forger):
    for one in (sums_forger.manifest, *sums_forger.episodes):
        one["env"]["kwargs"]["prompts"] = "mine.toml"
    sums_forger.write()
    with zipfile.ZipFile(sums_forger.folder / "forged.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for content, match in ((b"a." * 400_000 + b"a=1", "dots"), (b"a=" + b"[" * 10**6, "made")):
        result = verify(sums_forger.zip(members | {"prompts.toml": content},
                                        compression=zipfile.ZIP_DEFLATED))  # fmt: skip
        check = next(check for check in result.checks if check.name == "settings")
        assert check.result == "fail" and match in check.detail


@pytest.mark.parametrize("name", ["solvers", "debaters"])
def test_a_team_without_end(sums_forger, name):
    env = {"solvers": "vote-v0", "debaters": "debate-v0"}[name]
    for one in (sums_forger.manifest, *sums_forger.episodes):
        entry_point = spec(env).entry_point
        one["env"] = {"id": env, "entry_point": entry_point, "kwargs": {name: 10**9}}
    check = next(c for c in verify(sums_forger.write()).checks if c.name == "settings")
    assert check.result == "fail" and "at most 1000" in check.detail


# ---- anything at all -----------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
NO_FIXTURE_HEALTH = [HealthCheck.function_scoped_fixture]


def places(value, at=()):
    """Where anything stands in JSON values."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from places(value[number], (*at, number))


def put(value, at, new):
    for step in at[:-1]:
        value = value[step]
    value[at[-1]] = new


def judged(path):
    """Refused in a line, or judged; never anything else."""
    try:
        result = verify(path, processes=1)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
    else:
        msgspec.json.encode([check._asdict() for check in result.checks])


@settings(max_examples=15, suppress_health_check=NO_FIXTURE_HEALTH)
@given(draw=st.data())
def test_a_manifest_with_anything_anywhere(sums_submission, tmp_path, draw):
    forger = Forger(sums_submission, tmp_path)
    forger.episodes = forger.episodes[:4]
    spots = [at for at in places(forger.manifest) if at]
    put(forger.manifest, draw.draw(st.sampled_from(spots)), draw.draw(JSON))
    judged(forger.write(rehash=False))


@settings(max_examples=30, suppress_health_check=NO_FIXTURE_HEALTH)
@given(draw=st.data())
def test_an_episode_with_anything_anywhere(sums_submission, tmp_path, draw):
    forger = Forger(sums_submission, tmp_path)
    forger.episodes = forger.episodes[:4]
    spots = [at for at in places(forger.episodes[0]) if at]
    put(forger.episodes[0], draw.draw(st.sampled_from(spots)), draw.draw(JSON))
    judged(forger.write())


@settings(max_examples=25, suppress_health_check=NO_FIXTURE_HEALTH)
@given(draw=st.data())
def test_a_zip_with_any_bytes_changed(sums_submission, tmp_path, draw):
    content = bytearray(sums_submission.read_bytes())
    edges = st.integers(0, 200) | st.integers(len(content) - 250, len(content) - 1)
    for place in draw.draw(st.lists(edges | st.integers(0, len(content) - 1), max_size=6)):
        content[place] = draw.draw(st.integers(0, 255))
    path = tmp_path / "changed.zip"
    path.write_bytes(bytes(content))
    judged(path)


@settings(max_examples=30)
@given(content=st.binary(max_size=400), start=st.booleans())
def test_any_bytes_at_all(tmp_path_factory, content, start):
    path = tmp_path_factory.mktemp("any") / "sub.zip"
    path.write_bytes((b"PK\x03\x04" if start else b"") + content + b"PK\x05\x06" + bytes(18))
    judged(path)


def test_limits_are_those_that_are_given(sums_submission):
    with Archive(sums_submission) as archive, pytest.raises(BadFile, match="values"):
        list(archive.lines(Limits(marks=100)))
