"""`mas-bench compare` on real runs and on folders that no comparison can be made of."""

import json
from itertools import product

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.compare import compare
from benchmarks.run_folder import RUN_SCHEMA, Run, Settings, Stored
from mas_envs.episodes.schema import Episode, Grade, Sampling
from mas_envs.episodes.store import write_episodes
from mas_envs.errors import UserError

SUITE = {"name": "arith", "rows": 8, "sha256": "a" * 64, "file_sha256": None}
K = 4
# Question → correct samples of the 4.
WEAK = {"q0": 0, "q1": 1, "q2": 2, "q3": 4, "q4": 0, "q5": 1, "q6": 0, "q7": 2}
STRONG = {"q0": 3, "q1": 2, "q2": 2, "q3": 4, "q4": 1, "q5": 3, "q6": 0, "q7": 1}


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def episode(question, sample, correct=True, **more):
    fields = {"env": {"id": "math-v0"}, "prompts": "p", "task": question, "sample": sample,
              "grade": Grade(correct=correct, grader="math-1")}  # fmt: skip
    return Episode(**(fields | more))


def episodes_of(correct, k=K, **more):
    return [episode(question, sample, sample < right, **more)
            for question, right in correct.items() for sample in range(k)]  # fmt: skip


def store(folder, episodes, **settings):
    """A run's folder as `mas-bench run` leaves it."""
    policy = {"solver": {"target": str(folder.name)}}
    sampling = Sampling(temperature=0.6)
    usual = {"suite": SUITE, "questions": 8, "env": {"id": "math-v0"}, "prompts": "p",
             "policies": policy, "sampling": sampling, "k": K, "seed": 0}  # fmt: skip
    run = Run(schema=RUN_SCHEMA, settings=Settings(**(usual | settings)))
    folder.mkdir()
    Stored(folder, run).write()
    if episodes:
        write_episodes(folder / "episodes", episodes, tokens="none")
    return folder


@pytest.fixture
def weak(tmp_path):
    return store(tmp_path / "weak", episodes_of(WEAK))


@pytest.fixture
def strong(tmp_path):
    return store(tmp_path / "strong", episodes_of(STRONG), seed=3)


def test_the_numbers_by_hand(weak, strong):
    found = compare(weak, strong)
    avg, passed = found.metrics["avg@4"], found.metrics["pass@4"]
    gains = {question: 25.0 * (STRONG[question] - WEAK[question]) for question in WEAK}
    assert avg.difference.differences == gains
    assert avg.difference.points == pytest.approx(sum(gains.values()) / 8)
    assert avg.difference.relative == pytest.approx(100 * (sum(STRONG.values()) / 10 - 1))
    assert (avg.a.value, avg.b.value) == pytest.approx((31.25, 50.0))
    assert avg.difference.wins == ["q0", "q1", "q4", "q5"] and avg.difference.losses == ["q7"]
    moves = [3, 1, 1, 2, 1]
    far = [abs(sum(s * m for s, m in zip(signs, moves, strict=True))) >= 6
           for signs in product((1, -1), repeat=5)]  # fmt: skip
    assert avg.difference.p_value == pytest.approx(sum(far) / 32) and avg.difference.exact
    assert passed.difference.wins == ["q0", "q4"] and passed.difference.p_value == 0.5
    assert (passed.a.value, passed.b.value) == pytest.approx((62.5, 87.5))
    assert found.correct["q5"] == (1, 3) and found.warnings == []


def test_the_table_and_the_json_say_the_same(weak, strong, tmp_path):
    result = bench("compare", weak, strong, "--json", tmp_path / "found.json", "--top", 3)
    assert result.exit_code == 0, result.output
    shown = json.loads((tmp_path / "found.json").read_text())
    avg = shown["metrics"]["avg@4"]
    for text in (
        f"{avg['difference_points']:+.1f} (−{-avg['difference_points_low']:.1f} to",
        f"{avg['relative_gain_percent']:+.1f} %", f"{avg['p_value']:.4f}", "4 / 3 / 1",
        "the 3 largest of 5 differences", "31.2 %", "50.0 %",
    ):  # fmt: skip
        assert text in result.stdout, text
    assert avg["wins"] == ["q0", "q1", "q4", "q5"] and avg["ties"] == ["q2", "q3", "q6"]
    lines = result.stdout.splitlines()
    rows = [line for line in lines if " of 4" in line]
    assert [row.split("│")[1].strip() for row in rows] == ["q0", "q5", "q1"]
    assert "+75.0" in rows[0] and "warning" not in result.stderr


def test_swapped_runs_swap_everything(weak, strong):
    there, back = compare(weak, strong), compare(strong, weak)
    for metric, compared in there.metrics.items():
        mirror = back.metrics[metric]
        assert (mirror.a, mirror.b) == (compared.b, compared.a)
        assert mirror.difference.points == pytest.approx(-compared.difference.points)
        assert mirror.difference.p_value == compared.difference.p_value
        assert mirror.difference.wins == compared.difference.losses


def test_equal_runs_differ_by_nothing_but_not_for_certain(weak, tmp_path):
    other = store(tmp_path / "other", episodes_of(WEAK))
    result = bench("compare", weak, other)
    assert result.exit_code == 0 and "0 / 8 / 0" in result.stdout and "1.0000" in result.stdout
    assert "largest" not in result.stdout
    difference = compare(weak, other).metrics["avg@4"].difference
    assert difference.points == 0 and difference.low == -difference.high < -30


def test_nothing_is_relative_to_zero(tmp_path):
    none = store(tmp_path / "none", episodes_of(dict.fromkeys(WEAK, 0)))
    some = store(tmp_path / "some", episodes_of(WEAK))
    result = bench("compare", none, some)
    line = next(line for line in result.stdout.splitlines() if "relative gain" in line)
    assert line.count("—") == 2 and "inf" not in result.stdout and "nan" not in result.stdout


def test_forks_and_failures_that_were_played_again_are_no_samples(strong, tmp_path):
    more = [
        episode("q0", 0, True, provenance={"fork": "f", "sample": "1"}),
        episode("q1", 0, None, status="failed", reason="engine dead", grade=None),
    ]
    first = store(tmp_path / "first", [*more, *episodes_of(WEAK), more[0]])
    plain = store(tmp_path / "plain", episodes_of(WEAK))
    assert compare(first, strong).metrics == compare(plain, strong).metrics


def test_other_settings_are_a_warning(weak, tmp_path):
    other = store(
        tmp_path / "other", episodes_of(STRONG), sampling=Sampling(temperature=1.0),
        env={"id": "math-v0", "kwargs": {"max_rounds": 3}}, prompts="tiny",
    )  # fmt: skip
    result = bench("compare", weak, other)
    assert result.exit_code == 0
    for text in ("sampling.temperature: A 0.6, B 1.0", "env.kwargs", "prompts: A 'p', B 'tiny'"):
        assert f"not only in their policies: {text}" in result.stderr
    regraded = [
        msgspec.structs.replace(one, grade=msgspec.structs.replace(one.grade, grader="math-2"))
        for one in episodes_of(STRONG)
    ]
    newer = store(tmp_path / "newer", regraded)
    assert compare(weak, newer).warnings == ["grader: A math-1, B math-2"]


def without(question, **more):
    return {"episodes": episodes_of({q: c for q, c in STRONG.items() if q != question}), **more}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"suite": SUITE | {"name": "aime24", "sha256": "b" * 64}},
         "weak played arith (content aaaaaaaaaaaa…), "),
        ({"k": 2, "episodes": episodes_of({q: 1 for q in WEAK}, k=2)},
         "weak has k = 4, "),
        (without("q3", questions=7), "question 'q3': "),
        ({"episodes": [*without("q3")["episodes"], *episodes_of({"q9": 1})]}, "question 'q3': "),
        ({"episodes": []}, "32 of 32 samples are missing"),
        (without("q3"), "no headline number to compare: 4 of 32 samples are missing"),
        ({"episodes": episodes_of(STRONG)[:-1]}, "1 of 32 samples are missing"),
        ({"episodes": [*episodes_of(STRONG)[:-1],
                       episode("q7", 3, status="failed", reason="dead", grade=None)]},
         "1 of 32 samples are missing (1 failed)"),
        ({"episodes": [*episodes_of(STRONG)[:-1], episode("q7", 3, None)]},
         "the grader could not decide 1 sample of task 'q7', sample 3"),
        ({"episodes": [*episodes_of(STRONG)[:-1],
                       episode("q7", 3, provenance={"fork": "f"})]},
         "1 of 32 samples are missing"),
        ({"episodes": [*episodes_of(STRONG)[:-1], episode("q7", 0)]}, "recorded twice"),
        ({"episodes": [*episodes_of(STRONG)[:-1], episode("q6", 4)]}, "the run has k = 4"),
    ],
)  # fmt: skip
def test_incomparable_runs_are_refused_by_their_first_difference(weak, tmp_path, other, message):
    other = store(tmp_path / "other", **({"episodes": episodes_of(STRONG)} | other))
    for pair in ((weak, other), (other, weak)):
        with pytest.raises(UserError) as refused:
            compare(*pair)
        assert message in str(refused.value) or pair[0] == other
    result = bench("compare", weak, other, "--json", tmp_path / "found.json")
    assert result.exit_code == 2 and result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1 and message in result.stderr
    assert not (tmp_path / "found.json").exists()


def test_folders_that_are_no_run(weak, strong, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "run.json").write_text('{"name": "demo", "steps": 20}')
    (tmp_path / "link").symlink_to(weak)
    for args, message in [
        ((weak, tmp_path / "empty"), "empty/run.json: no such file; give a folder that mas-bench"),
        ((tmp_path / "gone", weak), "gone/run.json: no such file"),
        ((weak, tmp_path / "trainer"), "trainer/run.json: not a run's record"),
        ((weak, weak), "are the same run"),
        ((weak, tmp_path / "link"), "are the same run"),
        ((weak, strong, "--json", tmp_path / "no" / "f.json"), "its folder does not exist"),
    ]:
        result = bench("compare", *args)
        assert result.exit_code == 2 and message in result.stderr, result.output
        assert len(result.stderr.strip().splitlines()) == 1


def test_questions_are_listed_with_their_first_words(tmp_path):
    for name, right in (("a", {"q0": 0, "q1": 2}), ("b", {"q0": 4, "q1": 2})):
        asked = [msgspec.structs.replace(one, question=f"How  [bold]many\n{'beans ' * 40}")
                 for one in episodes_of(right)]  # fmt: skip
        store(tmp_path / name, asked, questions=2)
    result = bench("compare", tmp_path / "a", tmp_path / "b", "--json", tmp_path / "found.json")
    lines = result.stdout.splitlines()
    (row,) = [line for line in lines if "q0" in line]
    assert "How [bold]many beans" in row and "+100.0" in row
    assert max(map(len, lines)) <= 80
    assert "beans" not in (tmp_path / "found.json").read_text(), "texts are not for passing on"


def test_what_seems_a_contradiction_is_explained(weak, tmp_path):
    same = store(tmp_path / "same", episodes_of(WEAK))
    assert "note: no question differs; of so few (8)" in bench("compare", weak, same).stderr
    many = {f"q{n}": 0 for n in range(10)}
    some = {question: 2 if n < 6 else 0 for n, question in enumerate(many)}
    for name, right in (("none", many), ("some", some)):
        store(tmp_path / name, episodes_of(right), questions=10)
    found = bench("compare", tmp_path / "none", tmp_path / "some")
    avg = compare(tmp_path / "none", tmp_path / "some").metrics["avg@4"].difference
    told = "avg@4: p is below .05 though the interval holds 0" in found.stderr
    assert avg.p_value < 0.05 and told == (avg.low <= 0)


def test_two_real_runs(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        played = bench("run", "arith", "--policy", "scripted:adder", "-k", 2, "--limit", 4,
                       "--seed", seed, "--out", tmp_path / name)  # fmt: skip
        assert played.exit_code == 0, played.output
    result = bench("compare", tmp_path / "a", tmp_path / "b")
    assert result.exit_code == 0 and "arith · 4 questions × 2 samples" in result.stdout
    for name in ("a", "b"):
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert f"{summary['avg@2']['value']:.1f} %" in result.stdout
