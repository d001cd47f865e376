"""The golden cases: anew from their generator, passed by ours, failed by the known mistakes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from mas_envs.errors import UnknownName, UserError
from mas_train import conformance
from mas_train.advantages import PRESETS, SEPARATE, advantages
from mas_train.conformance.__main__ import app
from mas_train.conformance.cases import FOLDER
from mas_train.conformance.generate.__main__ import golden
from mas_train.conformance.ours import OURS, check_ours
from mas_train.learner.weights import AGGREGATIONS
from mas_train.losses import SURROGATES, gspo, kl_penalty, ppo
from tests.end_to_end.test_docs import DOCS, run_blocks


def test_the_files_are_what_the_generator_writes():
    written = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert written == golden()
    assert set(written) == set(conformance.KINDS)


def test_the_generator_shares_no_code_with_the_trainer():
    code = (
        "import sys, mas_train.conformance.generate.__main__ as g; g.golden();"
        "print([m for m in sys.modules if m.startswith(('mas_train.advantages', 'mas_train.losses',"
        "'mas_train.learner', 'mas_train.experience', 'torch'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("kind, report", check_ours(1e-11).items())
def test_this_trainer_passes(kind, report):
    report.raise_for_failures()
    assert all(result.verdict == "passed" for result in report)


def test_advantages_without_a_signal_are_exactly_zero():
    for case in conformance.cases("advantages"):
        right = case.expected["advantages"]
        if any(right):
            continue
        found = advantages(**case.inputs, **case.options, preset=case.name)
        assert (found == 0.0).all(), case.title


def test_every_method_has_cases():
    methods = {kind: {case.name for case in conformance.cases(kind)} for kind in conformance.KINDS}
    assert methods["advantages"] == set(PRESETS)
    assert methods["gae"] | methods["counterfactual"] == set(SEPARATE)
    assert methods["loss"] == set(SURROGATES)
    assert methods["weights"] == methods["total"] == set(AGGREGATIONS)
    assert methods["correction"] == {"tis", "seq_tis", "mis", "seq_mis", "geo_mis"}


def test_the_uneven_batches_are_uneven():
    found = [case for case in conformance.cases("advantages", "drmas") if "uneven g" in case.title]
    assert len(found) == 3 and any("known" not in case.inputs for case in found)
    for case in found:
        team = Counter(zip(case.inputs["prompt"], case.inputs["trajectory"], strict=True))
        sizes = Counter(prompt for prompt, _ in team)
        acting = {(p, t) for p, t, a in zip(*(case.inputs[key] for key in
                  ("prompt", "trajectory", "agent")), strict=True) if a == "verifier"}  # fmt: skip
        assert len(set(sizes.values())) > 1 and len(set(team.values())) > 1
        assert 0 < len(acting) < len(team)  # the verifier is absent from some trajectories
        assert len(set(case.inputs["rewards"].tolist())) > 3


def test_the_losses_reach_every_branch():
    for case in conformance.cases("loss"):
        gradient = np.array(case.expected["gradient"])
        credit = np.sign(case.inputs["advantages"])
        if "on-policy" in case.title:
            assert (np.sign(gradient) == -credit).all()
            continue
        if case.name == "ppo":
            for sign in (-1, 1):
                assert 0 < (gradient[credit == sign] == 0).sum() < (credit == sign).sum()
        if case.name == "gspo":
            assert 0 < (gradient == 0).sum() < len(gradient)


# --- mistakes that were made ------------------------------------------------------------------


def grouped(values, keys):
    return [[i for i, other in enumerate(keys) if other == key] for key in sorted(set(keys))]


def naive_drmas(rewards, prompt, agent, known=None, lone=0.0, ddof=1, keys=None):
    """What a first version looks like, in the rewards' own precision."""
    result = np.zeros(len(rewards), rewards.dtype)
    keys = keys or list(zip(prompt.tolist(), agent.tolist(), strict=True))
    for rows in grouped(rewards, keys):
        live = [i for i in rows if known is None or known[i]]
        if len(live) == 1:
            result[live] = lone * rewards[live]
        elif live:
            part = rewards[live]
            result[live] = (part - part.mean()) / (part.std(ddof=ddof) + 1e-6)
    return result


def failed(report):
    return {result.case.title: result.note for result in report.failures()}


def test_naive_code_fails_on_rounding_noise_alone():
    found = failed(conformance.check_advantages(naive_drmas, "drmas"))
    assert set(found) == {"3 rewards of 0.9 in float32", "12 rewards of 0.99 in float32"}
    assert "should be 0; 3 of 3 are wrong" in found["3 rewards of 0.9 in float32"]


def test_each_mistake_fails_its_case():
    def raw_reward(rewards, prompt, agent, known=None):
        return naive_drmas(rewards, prompt, agent, known, lone=1.0)

    def population(rewards, prompt, agent, known=None):
        return naive_drmas(rewards, prompt, agent, known, ddof=0)

    def no_agents(rewards, prompt, agent, known=None):
        return naive_drmas(rewards, prompt, agent, known, keys=prompt.tolist())

    def zero_for_unknown(rewards, prompt, agent, known=None):
        return naive_drmas(np.nan_to_num(rewards), prompt, agent)

    wrong = {
        mistake: failed(conformance.check_advantages(mistake, "drmas"))
        for mistake in (raw_reward, population, no_agents, zero_for_unknown)
    }
    assert {"a group of one row", "one known row"} <= set(wrong[raw_reward])
    assert wrong[population]["a pair"].endswith("all are 1.41421 times the right value")
    assert "a pair" not in wrong[no_agents]
    assert "an agent absent from half of the trajectories" in wrong[no_agents]
    assert "must get 0" in wrong[zero_for_unknown]["an unknown reward"]


def test_turns_counted_as_trajectories_fail():
    """slime#2300: three rows of one trajectory, one of another, centred at .75."""

    def by_turn(rewards, prompt, known=None):
        live = np.ones(len(rewards), bool) if known is None else known
        result = np.zeros(len(rewards))
        for rows in grouped(rewards, prompt.tolist()):
            alive = [i for i in rows if live[i]]
            result[alive] = rewards[alive] - rewards[alive].mean()
        return result

    found = failed(conformance.check_advantages(by_turn, "dr_grpo"))
    assert found["three rows of one trajectory, one of another"].startswith("[0] is 0.25, should")


def test_a_mean_per_micro_batch_fails():
    def mean_of_means(losses, row, micro_batches):
        return np.mean([losses[np.isin(row, rows)].mean() for rows in micro_batches])

    report = conformance.check("total", mean_of_means, "token_mean")
    assert len(failed(report)) == 3  # right only with a single micro-batch
    assert [one.case.title for one in report if one.verdict == "passed"] == ["one micro-batch"]


def test_wrong_losses_fail():
    def token_ratio(log_probs, old_log_probs, advantages, clip_low, clip_high):
        options = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": None}
        return ppo(log_probs, old_log_probs, advantages, **options).loss

    def flowing_weight(log_probs, old_log_probs, advantages, clip_low, clip_high):
        weight = (log_probs - old_log_probs).exp().clamp(1 - clip_low, 1 + clip_high)
        return -weight * advantages * log_probs

    assert len(failed(conformance.check_loss(token_ratio, "gspo"))) == 4
    notes = failed(conformance.check_loss(flowing_weight, "cispo")).values()
    assert len(notes) == 6 and all(note.startswith("gradient: ") for note in notes)

    def k3_value_with_k2_gradient(log_probs, reference_log_probs):
        value = kl_penalty(log_probs, reference_log_probs, "k3")
        slope = kl_penalty(log_probs, reference_log_probs, "k2")
        return value.detach() + slope - slope.detach()

    notes = failed(conformance.check("kl", k3_value_with_k2_gradient, "k3")).values()
    assert notes and all(note.startswith("gradient: ") for note in notes)


# --- adapters ---------------------------------------------------------------------------------


def numpy_gspo(log_probs, old_log_probs, advantages, row, clip_low, clip_high):
    log_ratio = np.array([np.mean((log_probs - old_log_probs)[row == one]) for one in row])
    ratio = np.exp(log_ratio)
    clipped = np.clip(ratio, 1 - clip_low, 1 + clip_high)
    return -np.minimum(ratio * advantages, clipped * advantages)


def numpy_cispo(log_probs, old_log_probs, advantages, clip_low, clip_high):
    weight = np.exp(log_probs - old_log_probs).clip(1 - clip_low, 1 + clip_high)
    return -weight * advantages * log_probs


def test_functions_on_arrays():
    report = conformance.check_loss(numpy_gspo, "gspo", framework="numpy")
    assert report.passed and not any(result.note for result in report)
    report = conformance.check_loss(numpy_cispo, "cispo", framework="numpy")
    assert report.passed and all("gradient not checked" in result.note for result in report)
    report = conformance.check("correction", OURS["correction"], framework="numpy")
    assert {one.note[:6] for one in report} == {"raised"}  # ours wants tensors


def test_functions_on_tensors():
    def mine(log_probs, old_log_probs, advantages, row, clip_low, clip_high):
        return gspo(log_probs, old_log_probs, advantages, row,
                    clip_low=clip_low, clip_high=clip_high).loss  # fmt: skip

    assert conformance.check_loss(mine, "gspo").passed
    broken = {
        "carries no gradient": lambda **given: mine(**given).detach(),
        "is no tensor": lambda **given: mine(**given).detach().numpy(),
        "shape (), should be (11,)": lambda **given: mine(**given).sum(),
    }
    for note, function in broken.items():

        def as_mine(log_probs, old_log_probs, advantages, row, clip_low, clip_high, f=function):
            return f(log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages,
                     row=row, clip_low=clip_low, clip_high=clip_high)  # fmt: skip

        report = conformance.check_loss(as_mine, "gspo")
        assert not report.passed and all(note in one.note for one in report.failures())


def test_a_function_that_fails_or_returns_nonsense_is_a_failed_case():
    def raises(rewards):
        raise RuntimeError("no\nsuch thing")

    returns = {"is not an array": "text", "shape (1,), should": [0.0], "is nan": np.nan}
    report = conformance.check_advantages(raises, "rae")
    assert {one.note for one in report if one.verdict == "failed"} == set()  # it takes no state
    assert not report.passed  # nothing ran
    with pytest.raises(conformance.NotConformant, match="3 skipped"):
        report.raise_for_failures()
    report = conformance.check_advantages(raises, "grpo")
    assert "raised RuntimeError: no such thing" in str(report)
    for note, value in returns.items():

        def wrong(rewards, value=value):
            return np.full(len(rewards), value) if value is np.nan else value

        found = failed(conformance.check_advantages(wrong, "grpo"))
        assert note in found["a pair"]
    report = conformance.check("gae", lambda rewards, values, lengths, gamma, lam: 1.0)
    assert "no tuple (advantages, returns)" in str(report.failures())


def test_a_function_without_an_option_is_checked_where_that_is_switched_off():
    def plain_ppo(log_probs, old_log_probs, advantages, clip_low, clip_high):
        return ppo(log_probs, old_log_probs, advantages, clip_low=clip_low, clip_high=clip_high,
                   dual_clip=None).loss  # fmt: skip

    report = conformance.check_loss(plain_ppo, "ppo")
    verdicts = {result.case.title: result.verdict for result in report}
    assert {title for title, verdict in verdicts.items() if verdict == "skipped"} == {
        "dual clip, token mean", "dual clip, sequence mean"}  # fmt: skip
    assert report.passed and verdicts["clip-higher, token mean"] == "passed"

    def upper_only(log_probs, old_log_probs, advantages, clip_high):
        ratio = (log_probs - old_log_probs).detach().exp()
        return -ratio.clamp(max=1 + clip_high) * advantages * log_probs

    skipped = [one.note for one in conformance.check_loss(upper_only, "cispo")
               if one.verdict == "skipped"]  # fmt: skip
    assert skipped and set(skipped) == {"the function takes no clip_low"}
    conformance.check_loss(upper_only, "cispo").raise_for_failures()


def test_a_running_mean_must_have_moved():
    def forgets(rewards, agent, state, known=None, decay=0.95):
        baseline = np.array([state[one] for one in agent.tolist()])
        live = np.isfinite(rewards)
        return np.where(live, np.nan_to_num(rewards) - baseline, 0.0)

    notes = failed(conformance.check_advantages(forgets, "rae")).values()
    assert len(notes) == 3 and all(note.startswith("state: ") for note in notes)


def test_what_a_check_refuses():
    with pytest.raises(UnknownName, match="did you mean 'drmas'"):
        conformance.check_advantages(naive_drmas, "drma")
    with pytest.raises(UnknownName, match="kind of golden case"):
        conformance.cases("losses")
    with pytest.raises(UnknownName, match="framework"):
        conformance.check_loss(numpy_cispo, "cispo", framework="jax")
    with pytest.raises(UserError, match="say which method the function is"):
        conformance.check_advantages(naive_drmas)
    with pytest.raises(UserError, match="no function"):
        conformance.check_advantages(np, "drmas")


def test_a_case_is_not_changed_by_the_function():
    def spoils(rewards, prompt):
        rewards[:] = 7.0
        return rewards

    def rewards():
        return json.dumps([case.inputs["rewards"].tolist()
                           for case in conformance.cases("advantages", "grpo")])  # fmt: skip

    before = rewards()
    conformance.check_advantages(spoils, "grpo")
    assert rewards() == before


def test_totals_are_exact():
    """The generator's sums are those of fractions: an oracle of the oracle, for one of them."""
    case = conformance.cases("total", "token_mean")[0]
    losses = [Fraction(str(loss)) for loss in case.inputs["losses"].tolist()]
    assert case.expected["loss"] == pytest.approx(float(sum(losses) / len(losses)), rel=1e-12)


# --- command line, page, imports --------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(app, arguments)


def test_the_command_line_checks_a_function_of_the_current_folder(tmp_path):
    (tmp_path / "mine.py").write_text("def zero(rewards, known=None):\n    return rewards * 0\n")
    command = [sys.executable, "-m", "mas_train.conformance", "mine:zero", "--preset", "drmas"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and "a pair" in result.stdout and "FAILED" in result.stdout


def test_the_command_line():
    right = invoke("mas_train.learner.weights:token_weights", "--kind", "weights")
    assert right.exit_code == 0 and "12 passed, 0 failed, 0 skipped" in right.stdout
    here = "tests.mas_train.test_conformance"
    arrays = invoke(f"{here}:numpy_gspo", "--kind", "loss", "--name", "gspo", "--numpy")
    assert arrays.exit_code == 0, arrays.output
    strict = invoke(f"{here}:numpy_gspo", "--kind", "loss", "--name", "gspo", "--numpy",
                    "--tolerance", "1e-16")  # fmt: skip
    assert strict.exit_code == 1
    unknown = invoke("mas_train.learner.weights:token_weights", "--kind", "weight")
    assert unknown.exit_code == 2 and "did you mean 'weights'" in unknown.stderr


def test_without_arguments_it_checks_this_trainer():
    result = invoke()
    assert result.exit_code == 0, result.output
    counts = [int(line.split()[1]) for line in result.stdout.splitlines()]
    assert counts == [len(list(group)) for _, group in
                      itertools.groupby(conformance.cases(), lambda case: case.kind)]  # fmt: skip


def test_the_page_runs(tmp_path):
    run_blocks((DOCS / "conformance.md").read_text(encoding="utf-8"), tmp_path)


def test_importing_it_needs_no_torch():
    code = (
        "import sys; from mas_train import conformance as c; import mas_train.conformance.ours;"
        "c.check_advantages(mas_train.advantages.advantages).raise_for_failures();"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'ray', 'vllm')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_report_reads_well():
    case = conformance.cases("weights", "constant")[0]
    report = conformance.Report([
        conformance.Result(case, "passed", 1e-12),
        conformance.Result(case, "failed", 0.5, "[0] is 1, should be 0.5"),
    ])  # fmt: skip
    assert str(report).splitlines()[1:] == [
        "constant  rows of one length  passed  1.0e-12",
        "constant  rows of one length  FAILED  5.0e-01  [0] is 1, should be 0.5",
        "1 passed, 1 failed, 0 skipped",
    ]
