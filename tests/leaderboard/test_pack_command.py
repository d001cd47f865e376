"""`mas-leaderboard pack`: every option, and what it refuses in one line."""

import json
import zipfile

import pytest
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.cli.pack import EXAMPLES
from leaderboard.hardware import detected
from leaderboard.verify import verify


@pytest.fixture
def pack(sums_run, tmp_path):
    def pack(*options, names=("--system", "pair", "--team", "our lab"), run=sums_run):
        out = tmp_path / "sub.zip"
        arguments = ["pack", str(run), "-o", str(out), *names, *options]
        return CliRunner().invoke(app, arguments)

    return pack


@pytest.fixture
def packed(pack, tmp_path):
    def packed(*options):
        result = pack(*options)
        assert result.exit_code == 0, result.output
        with zipfile.ZipFile(tmp_path / "sub.zip") as archive:
            return json.loads(archive.read("manifest.json")), result

    return packed


def test_all_that_a_manifest_has_to_say(packed, sums_run, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"question": "1+1=?", "answer": "2"}\n')
    model = "scripted:adder"
    manifest, result = packed(
        "--model", f"{model}=4.0B", "--revision", f"{model}=1cfa9a7", "--hardware", "1 × abacus",
        "--contact", "me@lab.example", "--training-data", "web crawl",
        "--training-data", "books", "--training-file", str(tmp_path / "train.jsonl"),
        "--cost", "12.5",
    )  # fmt: skip
    run = json.loads((sums_run / "run.json").read_text())
    settings, (session,) = run["settings"], run["sessions"]
    assert (manifest["system"], manifest["team"]) == ("pair", "our lab")
    assert manifest["models"] == {"solver": [model], "verifier": [model]}
    assert manifest["revisions"] == {model: "1cfa9a7"}
    assert manifest["parameters"] == {model: 4e9}
    assert manifest["policies"] == settings["policies"]
    assert manifest["env"] == settings["env"] and manifest["env"]["id"] == "math-v0"
    assert manifest["suite"] == settings["suite"] and len(manifest["suite"]["sha256"]) == 64
    assert manifest["sampling"] == {"temperature": 0.6, "top_p": 0.95, "top_k": 0,
                                    "max_tokens": 4096}  # fmt: skip
    assert (manifest["k"], manifest["seed"], manifest["passages"]) == (2, 0, None)
    assert manifest["sessions"] == [session] and {"commit", "dirty", "versions"} <= set(session)
    assert "numpy" in session["versions"] and session["started"] < session["finished"]
    assert (manifest["hardware"], manifest["contact"]) == ("1 × abacus", "me@lab.example")
    assert manifest["cost_usd"] == 12.5
    names = [one["name"] for one in manifest["training"]]
    assert names == ["web crawl", "books", "train.jsonl"]
    looked = manifest["training"][2]
    assert (looked["rows"], looked["touched"]) == (1, 0) and len(looked["sha256"]) == 64
    assert manifest["training"][0]["touched"] is None
    assert "sums, avg@2" in result.stdout and "note" not in result.stderr
    assert "Check it with: mas-leaderboard verify" in result.stderr
    assert verify(tmp_path / "sub.zip").status == "recomputed"


def test_without_options_nothing_is_made_up(packed):
    manifest, result = packed()
    for name in ("hardware", "contact", "training", "cost_usd"):
        assert manifest[name] is None
    assert manifest["revisions"] == manifest["parameters"] == {}
    assert "note: nothing is said of training data" in result.stderr
    assert packed("--untrained")[0]["training"] == []


def test_the_hardware_at_hand(packed):
    manifest, _ = packed("--hardware", "detect")
    assert manifest["hardware"] == detected() and "cores" in detected()


@pytest.mark.parametrize(("size", "number"), [("4b", 4e9), ("596M", 5.96e8), ("1.5T", 1.5e12),
                                              ("4e9", 4e9), ("600K", 6e5), ("12", 12)])  # fmt: skip
def test_sizes_of_models(packed, size, number):
    manifest, _ = packed("--model", f"scripted:adder={size}")
    assert manifest["parameters"] == {"scripted:adder": number}


BAD = [
    (["--model", "scripted:adder"], "write it as MODEL=VALUE"),
    (["--model", "=4B"], "write it as MODEL=VALUE"),
    (["--model", "scripted:adder="], "write it as MODEL=VALUE"),
    (["--model", "scripted:adder=big"], "no number of parameters"),
    (["--model", "scripted:adder=-4B"], "no number of parameters"),
    (["--model", "scripted:adder=nan"], "no number of parameters"),
    (["--model", "scripted:adder=1e400"], "no number of parameters"),
    (["--model", "scripted:adder=1B", "--model", "scripted:adder=2B"], "give one"),
    (["--model", "scripted:addr=1B"], "did you mean 'scripted:adder'"),
    (["--revision", "Qwen=abc"], "unknown model 'Qwen'"),
    (["--revision", "scripted:adder=a\nb"], "printable characters"),
    (["--contact", ""], "contact is ''"),
    (["--contact", "x" * 301], "1 to 300 printable characters"),
    (["--hardware", "\x1b[2J"], "hardware is"),
    (["--cost", "-1"], "'cost_usd' is -1"),
    (["--cost", "nan"], "'cost_usd' is nan"),
    (["--untrained", "--training-data", "books"], "say one of both"),
    (["--training-file", "no such file.jsonl"], "no such file"),
    (["--training-data", ""], "training data is ''"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=lambda one: str(one)[:50])
def test_bad_values_are_refused_in_a_line(pack, tmp_path, options, message):
    result = pack(*options)
    assert result.exit_code == 2 and message in result.stderr, result.output
    assert len(result.stderr.strip().splitlines()) == 1 and result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("system", "team"), [(" ", "t"), ("s", ""), ("a\u202eb", "t")])
def test_names_that_nobody_can_read(pack, tmp_path, system, team):
    result = pack(names=("--system", system, "--team", team))
    assert result.exit_code == 2 and "printable characters" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [("--system", "s"), ("--team", "t")])
def test_a_name_is_wanted(pack, names):
    result = pack(names=names)
    assert result.exit_code == 2 and "Missing option" in result.stderr


def test_help_shows_examples():
    shown = CliRunner().invoke(app, ["pack", "--help"])
    assert shown.exit_code == 0 and EXAMPLES[0] in " ".join(shown.stdout.split())
