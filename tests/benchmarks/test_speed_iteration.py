"""Whole iterations of both sides give what is said of them. What the figures are is not tested."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks.speed import iteration
from benchmarks.speed.iteration_sides import Case, Iteration, ending, ours, trl

CASE = Case(0.4, threads=1, prompts=1)
needs_trl = pytest.mark.skipif(not importlib.util.find_spec("trl"), reason="needs trl")


def test_lengths_are_drawn_anew_each_iteration_and_log_normal():
    many = Case(0.8, threads=1, prompts=500)
    lengths = many.lengths(3)
    assert np.array_equal(lengths, many.lengths(3)) and not np.array_equal(lengths, many.lengths(4))
    assert lengths.min() >= 8 and lengths.max() <= 512
    middle = np.log(lengths[(lengths > 8) & (lengths < 512)])
    assert abs(middle.mean() - np.log(64)) < 0.06 and abs(middle.std() - 0.8) < 0.06


def test_our_steps_sample_just_the_lengths_drawn():
    with ours(CASE, "math-single-v0", 2048) as iterate:
        for step in range(2):
            taken = iterate()
            assert taken.tokens == CASE.lengths(step).sum()
            assert 0 < taken.rollout < taken.wall and taken.cpu > 0


@pytest.mark.parametrize("env", ["math-single-v0", "math-v0"])
def test_the_model_ends_natural_responses(env):
    with ours(Case(None, threads=1, prompts=2), env, 2048) as iterate:
        assert 16 * 2 < iterate().tokens < 16 * (1 if env == "math-single-v0" else 4) * 40


@needs_trl
def test_steps_of_trl_sample_just_the_lengths_drawn():
    told = []
    taken = trl(CASE, 8, 2, lambda: told.append(1))
    assert [one.tokens for one in taken] == [CASE.lengths(step).sum() for step in range(2)]
    assert len(told) == 2 and all(0 < one.rollout < one.wall for one in taken)


def test_a_row_ends_with_its_stop_token_at_its_length_and_not_before():
    prompt, lengths = 5, [1, 3, 2]
    trainer = SimpleNamespace(processing_class=SimpleNamespace(eos_token_id=2))
    process = ending(lengths, prompt, trainer)
    for made in range(3):
        scores = process(torch.zeros(3, prompt + made), torch.randn(3, 6))
        chances = scores.softmax(-1)[:, 2]
        for chance, length in zip(chances.tolist(), lengths, strict=True):
            assert made >= length or chance == float(made == length - 1)


def test_the_table_has_medians_per_thousand_tokens_and_ratios():
    taken = {
        "ours": [Iteration(1000, wall, wall / 2, 0.25) for wall in (1.0, 2.0, 30.0)],
        "TRL": [Iteration(500, wall, wall, 1.0) for wall in (1.0, 2.0, 3.0)],
    }
    first, second = iteration.lines(taken, {"ours": 2048, "TRL": 64})
    assert first[1:] == [
        "2,048", "1,000", "2.000 (1.000–30.000)", "1.00", "1.000 (0.500–15.000)", "1.00",
        "0.250", "1.750",
    ]  # fmt: skip
    assert second[1:] == [
        "64", "500", "4.000 (2.000–6.000)", "2.00", "4.000 (2.000–6.000)", "4.00", "2.000", "2.000",
    ]  # fmt: skip


def test_the_command_prints_both_sides(monkeypatch):
    monkeypatch.setattr(iteration, "SIZES", {"ours": (2048,), "TRL": (8,)})
    monkeypatch.setattr(iteration, "TRIED", 1)
    options = ["--lengths", "natural", "--lengths", "0.4", "--prompts", "1", "--repeats", "1"]
    options += ["--threads", "1"]
    done = CliRunner().invoke(iteration.app, options, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    with_trl = importlib.util.find_spec("trl") is not None
    for table in done.output.split("natural")[-1].split("σ 0.4 lengths"):
        assert "│ ours " in table and ("│ TRL " in table) == with_trl
    assert done.output.count("│ ours, two agents ") == 1
    assert ("no row for it" in done.output) != with_trl


def test_sizes_of_trl_divide_the_completions():
    assert iteration.candidates(Case(None, 1, prompts=16), "TRL") == [32, 64, 128]
    assert iteration.candidates(Case(None, 1, prompts=3), "TRL") == [24]


def test_help_shows_an_example():
    done = CliRunner().invoke(iteration.app, ["--help"], env={"COLUMNS": "200"})
    assert "Example: python -m benchmarks.speed.iteration --" in done.output


def test_lengths_are_natural_or_a_number():
    done = CliRunner().invoke(iteration.app, ["--lengths", "long"], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "--lengths long: natural, or a number" in done.output
