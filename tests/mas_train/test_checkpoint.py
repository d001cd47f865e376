"""A checkpoint that is not what was saved is named, file by file, before anything is loaded."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.errors import BadFile, UserError
from mas_train.run import checkpoint

FILES = {
    "a/model.safetensors": b"weights" * 9,
    "a/config.json": b"{}",
    "a.optimizer/.metadata": b"m",
    "b.optimizer.pt": bytes(range(256)),
}


class Parts:
    """What a model writes."""

    def save(self, folder, optimizer_file):
        for name, content in FILES.items():
            path = folder.parent / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


STATE = {"episodes": [0, 12], "drawn": 4, "baselines": {"solver": 0.25}, "team": {}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    for step in (1, 2):
        checkpoint.save(folder, step, {"a": Parts()}, STATE, keep=2)
    return folder


@pytest.fixture
def newest(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "checkpoints")
    return checkpoint.newest(tmp_path / "checkpoints")


def test_what_was_saved_is_whole(newest):
    checkpoint.verify(newest)
    state = checkpoint.read_state(newest)
    assert set(state["files"]) == set(FILES)
    assert {key: state[key] for key in STATE} == STATE


@given(st.data())
def test_any_changed_byte_of_any_file_is_found_and_the_file_named(saved, data):
    newest = checkpoint.newest(saved)
    path = newest / data.draw(st.sampled_from([*FILES, "state.json"]))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    try:
        path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        with pytest.raises(UserError) as caught:
            checkpoint.verify(newest)
        assert str(path) in str(caught.value)
    except AssertionError:  # but white space in JSON means nothing
        assert path.name == "state.json"
        assert json.loads(path.read_bytes()) == json.loads(whole)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("name", [*FILES, "state.json"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "longer", "gone", "a folder"])
def test_damage_names_the_file_and_the_checkpoint_to_go_on_from(newest, name, damage):
    path = newest / name
    whole = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "gone":
        changed = {"cut": whole[: len(whole) // 2], "emptied": b"", "longer": whole + b"x"}
        path.write_bytes(changed[damage])
    with pytest.raises(BadFile) as caught:
        checkpoint.verify(newest)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.endswith(f"remove {newest}, and mas-train resume goes on from step-000001")


def test_without_an_older_one_a_copy_or_a_new_run_is_advised(newest):
    shutil.rmtree(newest.parent / "step-000001")
    (newest / "b.optimizer.pt").unlink()
    with pytest.raises(BadFile, match=r"bring back a copy of it, or start a new run under another"):
        checkpoint.verify(newest)


@pytest.mark.parametrize(
    "changes",
    [{"step": "x"}, {"step": -1}, {"episodes": 3}, {"episodes": ["a", 0]}, {"episodes": [1, 2, 3]},
     {"drawn": "x"}, {"drawn": True}, {"baselines": [1]}, {"files": [1]}, {"files": {"a": 3}},
     {"files": {"a": [1, "b"]}}, {"files": {"a": [1], "b": [1, 2, 3]}}],
)  # fmt: skip
def test_a_state_that_another_program_wrote(newest, changes):
    path = newest / "state.json"
    state = {**json.loads(path.read_text()), **changes}
    del state["checksum"]
    path.write_text(json.dumps(state))
    with pytest.raises(BadFile, match=r"state\.json: does not say where the run stood; remove"):
        checkpoint.read_state(newest)


def test_one_of_a_release_without_checksums_is_taken_as_it_is(newest):
    path = newest / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in state.items() if k not in ("files", "checksum")}))
    (newest / "a/config.json").write_text("{ }")
    checkpoint.verify(newest)
