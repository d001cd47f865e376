"""The intervals cover: simulated runs whose truth is known."""

import numpy as np
import pytest

from benchmarks.coverage import PAIRS, RARE, SAMPLES, SINGLE, paired_runs, single_runs


@pytest.mark.parametrize("case", SINGLE)
def test_the_truth_of_a_score(case):
    rng = np.random.default_rng(0)
    right = rng.binomial(SAMPLES, case.draw(rng, (1, 100_000)))
    for truth, values in ((case.avg(), right / SAMPLES), (case.passed(), right > 0)):
        assert truth == pytest.approx(values.mean(), abs=4 * values.std() / 300 + 1e-4)


@pytest.mark.parametrize("case", [*PAIRS, *RARE], ids=lambda case: case.name)
def test_the_truth_of_a_difference(case):
    rng = np.random.default_rng(0)
    before, after = (rng.binomial(SAMPLES, each) for each in case.draw(rng, (1, 100_000)))
    avg = (after - before) / SAMPLES
    assert case.truth("avg") == pytest.approx(avg.mean(), abs=4 * avg.std() / 300 + 1e-4)
    passed = (after > 0) * 1.0 - (before > 0)
    assert case.truth("pass") == pytest.approx(passed.mean(), abs=4 * passed.std() / 300 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("simulated", [single_runs, paired_runs])
def test_every_interval_covers_in_93_percent_of_runs(simulated):
    runs = 2000
    noise = 3 * np.sqrt(0.93 * 0.07 / runs)
    short = [found for found in simulated(runs, seed=1) if found.covered < 0.935 - noise]
    assert not short


@pytest.mark.slow
def test_what_few_questions_decide_is_covered_as_the_docstring_says():
    found = list(paired_runs(2000, seed=1, cases=RARE))
    for questions, share in ((30, 0.786), (125, 0.907), (500, 0.944)):
        covered = [one.covered for one in found if one.questions == questions]
        assert min(covered) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 2000))
