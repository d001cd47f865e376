"""Three drmas steps of two models through the trainer's own `train_step`, with meters attached."""

import time

import numpy as np

from mas_envs import EpisodeWriter, read_episodes
from mas_envs.failure_watch import FailureWatch
from mas_train.config import resolve
from mas_train.environment import make_env, run_tasks
from mas_train.experience.rows import episode_rows
from mas_train.loop import train_step
from mas_train.plan import make_plan
from mas_train.run.run_folder import RunState
from mas_train.run.stopping import StopSignal
from mas_train.team import Team
from mas_train.trained_model import PROBE_TOLERANCE

STEPS = 3
BUDGETS = (16384, 8192, 4096, 2048)
ROOM = 0.8
"""Share of the device that the plan may fill."""


def configured(folder, engine, *, on_gpu, token_budget):
    """The run: one model with gradient checkpointing, the other with its optimizer offloaded.

    Rewards of random weights are all 0; a penalty on length, from the first token on, makes them
    differ, and the model's responses end at random.
    """
    served = {"name": engine, "max_model_len": 1024 if on_gpu else 256}
    if engine == "vllm":
        served |= {"memory": 0.15, "eager": True}  # two compilations would take too long
    model = {"path": str(folder), "dtype": "bfloat16", "engine": served}
    most = 128 if on_gpu else 12
    return resolve({
        "run": {"name": "gpu", "threads": None if on_gpu else 1},
        "env": {"id": "math-v0", "args": {"max_rounds": 2}, "prompts": "tiny"},
        "tasks": {name: {"source": "arith", "split": name} for name in ("train", "dev")},
        "agents": {"solver": {"model": "solver"}, "verifier": {"model": "verifier"}},
        "models": {
            "solver": {**model, "optimizer": {"lr": 1e-5}, "gradient_checkpointing": True},
            "verifier": {**model, "optimizer": {"lr": 1e-5, "offload": True}},
        },
        "rollout": {
            "group_size": 8 if on_gpu else 4, "prompts_per_step": 64 if on_gpu else 2,
            "max_tokens": most, "overlong": {"buffer": most},
        },
        "estimator": {"preset": "drmas"},
        "train": {"steps": STEPS, "token_budget": token_budget},
    })  # fmt: skip


def fitted(folder, engine, meter):
    """The run with the largest token budget that fits the device, and its plan."""
    for budget in BUDGETS if meter.gpu else (512,):
        config = configured(folder, engine, on_gpu=bool(meter.gpu), token_budget=budget)
        plan = make_plan(config)
        if plan.peak(meter.total) <= ROOM * meter.total:
            return config, plan
    raise MemoryError(f"the run does not fit {ROOM:.0%} of {meter.total:,} bytes at any budget")


def run_training(report, folder, engine, out, meter):
    """The steps, then the checks of the engines; findings go into the report."""
    config, plan = fitted(folder, engine, meter)
    env, (tasks, _) = make_env(config), run_tasks(config)
    started = time.perf_counter()
    team = Team(config)
    team.sync(0)
    meter.seconds["load"] = time.perf_counter() - started
    probes = attach(team, meter)
    state, failures, steps = RunState(), FailureWatch(), []
    meter.phase = "playing"
    with EpisodeWriter(out / "episodes") as writer, StopSignal() as stop:
        for step in range(STEPS):
            steps.append(
                train_step(config, env, team, tasks, step, state, writer, stop, failures, str)
            )
    meter.phase = "checking"
    rows = episode_rows(read_episodes(out / "episodes"))
    report_steps(report, config, steps, rows, meter)
    for name, found in probes.items():
        report.limit(
            f"probe of {name} after each sync, largest mean", max(found, default=float("nan")),
            PROBE_TOLERANCE["bfloat16"], " nats",
        )  # fmt: skip
    if len(probes) < 2 or any(len(found) < STEPS for found in probes.values()):
        report.add("probes", str(probes), f"not {STEPS} of each model")
    for phase, predicted in (
        ("playing", plan.playing(meter.total)),
        ("learning", plan.learning(meter.total)),
    ):
        report.memory(f"memory while {phase}", predicted, meter.peaks.get(phase))
    check_engines(report, config, team, rows, meter)
    for served in team.engines.values():
        served.close()


def attach(team, meter):
    """Have the team's calls measured; the differences that its probes find, by model."""
    probes = {name: [] for name in team.trained}
    team.update = meter.timed("update", team.update)  # of which the updates of each model are part
    team.sync = meter.timed("sync", team.sync)
    for name, model in team.trained.items():
        model.update = meter.learning(f"update {name}", model.update)
        model.sync = recorded(model.sync, probes[name])
    for engine in {id(one): one for one in team.engines.values()}.values():
        engine.sleep = meter.timed("sleep", engine.sleep)
    return probes


def recorded(function, results):
    def run(*args, **options):
        results.append(function(*args, **options))
        return results[-1]

    return run


def report_steps(report, config, steps, rows, meter):
    for name, settings in config.models.items():
        active = sum(step["models"][name]["active_tokens"] for step in steps)
        mismatch = max(step["models"][name].get("mismatch", np.inf) for step in steps)
        norms = [step["models"][name]["grad_norm"] for step in steps]
        skipped = sum(step["models"][name]["skipped"] for step in steps)
        report.add(
            f"{name}: gradient norms", " ".join(f"{norm:.3g}" for norm in norms),
            "" if active and not skipped and np.isfinite(norms).all() else "not three real steps",
        )  # fmt: skip
        report.limit(f"{name}: mean difference of sampler and learner", mismatch, 0.1, " nats")
        if settings.engine.name == "vllm" and settings.engine.sleep and not meter.calls["sleep"]:
            report.add(f"{name}: sleep", "never", "its engine was never put to sleep")
    failed = sum(step["failed"] for step in steps)
    report.add("failed episodes", str(failed), "there must be none" if failed else "")
    rollout = sum(step["seconds"]["rollout"] for step in steps)
    sampled = sum(len(ids) for ids in rows.ids)
    packed = sampled + sum(len(ids) for ids in rows.prompt_ids)
    report.add("seconds, load", f"{meter.seconds['load']:.1f}")
    report.add("seconds, rollout", f"{rollout:.1f} ({sampled / rollout:,.0f} sampled tokens/s)")
    for name in sorted(set(meter.seconds) - {"load"}):
        report.add(f"seconds, {name}", f"{meter.seconds[name]:.1f}")
    report.add("update", f"{packed / meter.seconds['update']:,.0f} tokens/s, prompts included")


def check_engines(report, config, team, rows, meter):
    for name, model in team.trained.items():
        settings = config.models[name]
        where = type(model.engine).__module__
        wrong = "" if where.endswith(f".{settings.engine.name}") else "another was asked for"
        report.add(f"{name}: engine", where, wrong)
        mine = rows.take(rows.agent == name)
        sampled = next(i for i, ids in enumerate(mine.ids) if len(ids))
        row = mine.take([sampled])
        check_push(report, name, model, row, PROBE_TOLERANCE[settings.dtype])
        check_sleep(report, name, model, row, settings, meter)


def check_push(report, name, model, row, tolerance):
    """Every row of the tied embedding is another one's: the engine must compute that at once.

    A head that is forgotten, or keys and values that are kept, would show as several nats. All are
    means over the probe's tokens, as in the trainer's own probe.
    """
    prompt, ids = row.prompt_ids[0].tolist(), row.ids[0].tolist()
    before = model.engine.probe(prompt, ids)
    embedding = model.learner.model.get_input_embeddings().weight
    kept = embedding.detach().clone()
    for version, weight in ((STEPS + 1, kept.roll(1, 0)), (STEPS + 2, kept)):
        embedding.data.copy_(weight)
        difference = model.sync(version, row)
        report.limit(f"{name}: probe after push {version}", difference, tolerance, " nats")
        if version == STEPS + 1:
            moved = float(np.abs(model.engine.probe(prompt, ids) - before).mean())
            told = "" if moved > 1 else "too little for the probe to tell anything"
            report.add(f"{name}: what that push changed", f"{moved:.3g} nats", told)
    again = float(np.abs(model.engine.probe(prompt, ids) - before).mean())
    report.limit(f"{name}: back at the old weights", again, tolerance, " nats")


def check_sleep(report, name, model, row, settings, meter):
    """Asleep the engine's memory is free; awake it says what it said before."""
    prompt, ids = row.prompt_ids[0].tolist(), row.ids[0].tolist()
    before = model.engine.probe(prompt, ids)
    awake = meter.gpu.used() if meter.gpu else 0
    model.engine.sleep()
    freed = awake - meter.gpu.used() if meter.gpu else 0
    after = model.engine.probe(prompt, ids)
    difference = float(np.abs(after - before).mean())
    tolerance = PROBE_TOLERANCE[settings.dtype]
    report.limit(f"{name}: probe after sleep and wake", difference, tolerance, " nats")
    if settings.engine.name == "vllm" and meter.gpu:
        share = freed / (settings.engine.memory * meter.total)
        report.add(f"{name}: freed by sleep", f"{share:.0%} of its share",
                   "" if share >= 0.7 else "too little")  # fmt: skip
