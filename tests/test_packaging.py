"""What a user installs: pinned versions that fit, five commands, one wheel, generic names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
COMMANDS = ("mas-envs", "mas-train", "mas-retrieve", "mas-bench", "mas-leaderboard")
PACKAGES = ("mas_envs", "mas_train", "retrievers", "benchmarks", "leaderboard")


def pins(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text().splitlines()
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in found}


def conflicts(pinned: dict[str, Version], owner: str, requirements: list[str]) -> list[str]:
    """Requirements of `owner` that a pin does not satisfy."""
    wrong = []
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{owner} wants {text}, pinned is {version}")
    return wrong


def test_cpu_pins_fit_each_other():
    pinned = pins("constraints-cpu.txt")
    wrong = []
    for name in pinned:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # a pin of an extra that is not installed here
        wrong += conflicts(pinned, name, found.requires or [])
    assert not wrong
    assert pinned["torch"] == Version("2.13.0")
    assert Version("5.16.1") <= pinned["transformers"] < Version("5.20")


def test_what_is_installed_is_what_is_pinned():
    pinned = pins("constraints-cpu.txt")
    installed = {canonicalize_name(d.metadata["Name"]): d.version for d in metadata.distributions()}
    differing = {
        name: (installed[name], str(version))
        for name, version in pinned.items()
        if name in installed and Version(Version(installed[name]).public) != version
    }
    assert not differing


def test_gpu_pins_fit_vllm_and_what_it_brings():
    pinned = pins("constraints-gpu.txt")
    files = sorted((ROOT / "tests/requirements").glob("*.txt"))
    assert [file.name.split("-")[0] for file in files] == ["mistral_common", "numba", "vllm"]
    for file in files:
        lines = file.read_text().splitlines()
        wanted = [line for line in lines if not line.startswith("#")]
        assert wanted and not conflicts(pinned, file.stem, wanted)
    assert (pinned["vllm"], pinned["torch"]) == (Version("0.33.0"), Version("2.14.0"))
    assert pinned["transformers"] < Version("5.21")


@pytest.mark.parametrize("constraints", ["constraints-cpu.txt", "constraints-gpu.txt"])
def test_our_own_requirements_admit_the_pins(constraints):
    pinned = pins(constraints)
    requirements = [text.split(";")[0] for text in metadata.requires("mas-gym") or []]
    assert len(requirements) > 20
    ours = [text for text in requirements if not re.match(r"(mas-gym|vllm)\b", text)]
    assert not conflicts(pinned, "mas-gym", ours)


def test_a_wrong_pin_is_noticed():
    assert conflicts({"torch": Version("2.13.0")}, "vllm", ["torch==2.14.0"])


@pytest.fixture
def decoys(tmp_path):
    """A folder with modules and packages of our names that must never be imported."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a decoy was imported')")
    for name in ("metrics", "suites", "runner", "cli", "base"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a decoy was imported')")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_beside_decoys(command, decoys):
    program = Path(sys.executable).with_name(command)
    result = subprocess.run(
        [program, "--help"], cwd=decoys, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Usage" in result.stdout and "Examples" in result.stdout
    assert "decoy" not in result.stdout + result.stderr


def test_imports_beside_decoys(decoys):
    names = (
        "benchmarks.metrics, benchmarks.suites, benchmarks.runner, retrievers.bm25, "
        "leaderboard.verify, mas_envs.testing, mas_train.config, mas_train.loop"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", f"import {names}"],
        cwd=decoys, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_our_subprocesses_do_not_see_decoys(decoys):
    program = Path(sys.executable).with_name("mas-envs")
    result = subprocess.run(
        [program, "check", "math-v0", "--episodes", "2"],
        cwd=decoys, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_the_wheel_holds_our_packages_and_no_tests(tmp_path):
    source = tmp_path / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in tracked:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    build = "from hatchling.build import build_wheel; print(build_wheel('dist'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = (source / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {*PACKAGES, names[-1].split("/")[0]}
    ours = {name for name in tracked if name.split("/")[0] in PACKAGES and (ROOT / name).is_file()}
    assert ours <= set(names), "whatever lies in our packages is shipped"
    viewer = ("page.html", "page.css", "page.js", "chunks.js", "text.js")
    for wanted in (
        "mas_envs/prompt_sets/math/tiny.toml",
        *(f"mas_envs/episodes/viewer/{name}" for name in viewer),
        "mas_train/demo/demo.yaml",
        "mas_train/demo/weights/model.safetensors",
        "mas_train/recipes/math_qwen3_4b_shared.yaml",
        "benchmarks/suites/suites.yaml",
        "benchmarks/suites/training.yaml",
    ):
        assert wanted in names
    program = (
        "from pathlib import Path; import benchmarks\n"
        "from benchmarks.suites import suites\n"
        "from benchmarks.suites.training import training_sets\n"
        "from mas_envs import Episode\n"
        "from mas_envs.episodes.viewer import ViewerFolder\n"
        "from mas_train.recipes import recipes\n"
        "assert Path(benchmarks.__file__).is_relative_to(Path.cwd()), benchmarks.__file__\n"
        "with ViewerFolder(Path('page'), ['a']) as viewer:\n"
        "    viewer.add(Episode(env={}, prompts='', task='x', sample=0, status='failed'), 'a')\n"
        "    viewer.finish('Report')\n"
        "print(len(suites()), len(training_sets()), len(recipes()))"
    )
    zipfile.ZipFile(wheel).extractall(tmp_path / "unpacked")
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "unpacked", env={**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["19", "2", "15"]


def test_plots_need_an_extra_without_torch_that_the_trainers_includes():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert [Requirement(text).name for text in extras["plots"]] == ["matplotlib"]
    assert "mas-gym[plots]" in extras["train"]
    text = (ROOT / "benchmarks/report/plots.py").read_text()
    named = re.findall(r"mas-gym\[(\w+)\]", text)
    assert named == ["plots"]
