"""What docs/ shows is run as it stands: the tutorial block by block, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BIN = Path(sys.executable).parent
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w/]+\.(?:py|toml|yaml))\n")
TRAINING = "## 5. Train it"


def blocks(text):
    return [(match[1], match[2]) for match in FENCED.finditer(text)]


def run_blocks(text, folder):
    """Write the named blocks, run the others; a text block is what the block before it printed."""
    printed = None
    for language, block in blocks(text):
        if language == "text":
            assert printed is not None and block in printed, f"{block}\nwas to be in\n{printed}"
        elif name := FILE.match(block):
            assert name[1].endswith({"python": "py"}.get(language, language))
            path = folder / name[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.replace(name[0], "", 1), encoding="utf-8")
        else:
            command = {"python": [sys.executable, "-c"], "sh": ["bash", "-ec"]}[language]
            printed = run([*command, block], folder)


def run(command, folder):
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    result = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command[-1]}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def tutorial():
    text = (DOCS / "new-workflow.md").read_text(encoding="utf-8")
    assert text.count(TRAINING) == 1
    return text.split(TRAINING)


def test_the_tutorial_plays_what_it_writes(tutorial, tmp_path):
    run_blocks(tutorial[0], tmp_path)


@pytest.mark.slow
def test_the_tutorial_trains_and_measures(tutorial, tmp_path):
    pytest.importorskip("torch")
    for language, block in blocks(tutorial[0]):
        if FILE.match(block):
            run_blocks(f"```{language}\n{block}```", tmp_path)
    run_blocks(tutorial[1], tmp_path)
    assert (tmp_path / "results" / "summary.json").exists()


def test_the_page_on_methods_runs(tmp_path):
    run_blocks((DOCS / "own-method.md").read_text(encoding="utf-8"), tmp_path)


PAGES = sorted(DOCS.glob("*.md"), key=lambda page: page.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_and_names_exists(page):
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target[1:] in titles if target[0] == "#" else (DOCS / target).exists(), target
    folders = "mas_envs|mas_train|examples|docs|tests"
    for path in re.findall(rf"`((?:{folders})/[\w/]+\.\w+)`", text):
        assert (DOCS.parent / path).exists(), path


@pytest.mark.parametrize("number", range(4))
def test_the_adapters_page_runs(number, tmp_path):
    python = [block for language, block in blocks((DOCS / "adapters.md").read_text()) if language]
    assert len(python) == 4
    if "torchrl" in python[number]:
        pytest.importorskip("torchrl")
    run([sys.executable, "-c", python[number]], tmp_path)
