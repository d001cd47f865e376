"""mas-train: train a team, resume a run, see the demo."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mas_envs.console import command_line, epilog, progress
from mas_envs.errors import UserError
from mas_train.advantages.presets import PRESETS, SEPARATE

if TYPE_CHECKING:
    from mas_train.config import Config

app = command_line(
    "Train teams of language models with agent-wise GRPO.",
    examples=[
        "mas-train demo                                # the whole path in two minutes",
        "mas-train run team.yaml --set train.steps=50  # train your own team",
        "mas-train resume runs/team                    # go on after a kill",
        "mas-train check team.yaml                     # validate, print all settings",
        "mas-train recipes                             # whole configurations by name",
        "mas-train plan math_qwen3_4b_shared           # what would run, what it needs",
        "mas-train export runs/team models             # Hugging Face folders",
    ],
)
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key: models.a.optimizer.lr=3e-6")
]


@app.command(
    epilog=epilog(
        [
            "mas-train run team.yaml",
            "mas-train run team.yaml --set run.name=second --set train.steps=50",
            "mas-train run tinyworld_cpu                   # a recipe, by name",
        ]
    )
)
def run(config: Path, set_: Overrides = None) -> None:
    """Train as CONFIG (a YAML file or a recipe) says; everything goes to run.dir/run.name."""
    from mas_train.run.run_folder import check_unused

    with _loaded(config, set_ or ()) as loaded:
        check_unused(loaded.folder)  # before seconds of imports
        _train(loaded, resume=False)


@app.command(
    epilog=epilog(
        [
            "mas-train resume runs/team",
            "mas-train resume runs/team --set train.steps=100   # further than planned",
        ]
    )
)
def resume(folder: Path, set_: Overrides = None) -> None:
    """Go on with the run in FOLDER from its newest checkpoint."""
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"{folder} holds no run: it has no config.yaml; give a folder like runs/team"
        )
    with _loaded(folder / "config.yaml", set_ or ()) as loaded:
        # The folder may have been moved since; where it is now is what counts.
        here = {"dir": str(folder.parent), "name": folder.resolve().name}
        place = loaded.run.model_copy(update=here)
        _train(loaded.model_copy(update={"run": place}), resume=True)


@app.command()
def check(config: Path, set_: Overrides = None) -> None:
    """Validate CONFIG, its environment and its tasks; print it with every default written out."""
    from mas_train.environment import check_run_golds, make_env, run_tasks
    from mas_train.model_path import check_models

    with _loaded(config, set_ or ()) as loaded:
        check_models(loaded)
        check_run_golds(make_env(loaded), *run_tasks(loaded))
    typer.echo(loaded.to_yaml(), nl=False)


@app.command(
    epilog=epilog(
        [
            "mas-train plan math_qwen3_4b_shared --gpu-memory 80",
            "mas-train plan team.yaml --set train.token_budget=4096",
        ]
    )
)
def plan(
    config: Path,
    set_: Overrides = None,
    gpu_memory: Annotated[
        list[float] | None, typer.Option(min=1, help="GiB of a device (default: four sizes).")
    ] = None,
) -> None:
    """Print what CONFIG (a YAML file or a recipe) would run: parameters, memory, tokens, FLOPs.

    Needs neither GPU nor weights. For each size of device it says whether the run fits, and which
    sizes to lower if it does not.
    """
    from mas_train.plan import DEVICES, make_plan, report

    with _loaded(config, set_ or ()) as loaded:
        typer.echo(report(make_plan(loaded), gpu_memory or DEVICES))


@app.command()
def recipes() -> None:
    """List the recipes: whole configurations that run, plan and check take by name."""
    from mas_train.config import load
    from mas_train.recipes import recipes as known

    found = known()
    width = max(map(len, found))
    for name, path in found.items():
        typer.echo(f"{name:{width}}  {load(path).about['title']}")


@app.command(
    epilog=epilog(
        [
            "mas-train export runs/team models                    # models/a, models/b",
            "mas-train export runs/team solver --agent solver",
            "mas-train export runs/team/checkpoints/step-000010 models",
        ]
    )
)
def export(
    source: Path,
    out: Path,
    agent: Annotated[str | None, typer.Option(help="Only the model of this agent.")] = None,
) -> None:
    """Write the trained models of SOURCE (a run or checkpoint) as Hugging Face folders below OUT.

    With --agent, OUT is the folder of that agent's model. LoRA adapters are merged.
    """
    _quiet()
    from mas_train.run.export import checkpoint_of, players
    from mas_train.run.export import export as export_models

    agents = players(checkpoint_of(source))
    for name, folder in export_models(source, out, agent).items():
        typer.echo(
            f"{folder}: plays {', '.join(a for a, model in agents.items() if model == name)}"
        )


@app.command()
def plot(folder: Path) -> None:
    """Draw the run in FOLDER as PNG: reward, evaluations, gradients, lengths, entropy, KL."""
    for path in _draw(folder):
        typer.echo(path)


def _draw(folder: Path) -> list[Path]:
    from mas_train.run.metrics_log import read_metrics
    from mas_train.run.plots import plot_run

    return plot_run(read_metrics(folder / "metrics.jsonl"), folder / "plots")


@app.command()
def demo(
    estimator: Annotated[
        str, typer.Option(help=f"One of: {', '.join((*PRESETS, *SEPARATE))}.")
    ] = "drmas",
    shared: Annotated[bool, typer.Option(help="One model plays both roles.")] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps.")] = None,
    set_: Overrides = None,
) -> None:
    """Train a small solver-verifier team on this machine and measure it before and after."""
    _quiet()
    from mas_train.demo.run import demo_config, run_demo

    config = demo_config(estimator, shared, seed, steps, set_ or ())
    summary = run_demo(config)
    _show(summary, config.eval.samples)
    typer.echo(f"conversations, plots and numbers: {config.folder / 'index.html'}")


@contextmanager
def _loaded(path: Path, overrides: Sequence[str]) -> Iterator[Config]:
    """The configuration; a mistake in it that only its environment or tasks show names the file."""
    from mas_train.config import Misconfigured, load
    from mas_train.recipes import recipe

    path = recipe(path)
    loaded = load(path, overrides)
    try:
        yield loaded
    except Misconfigured as error:
        made = loaded.about.get("data") if "no such file" in str(error) else None
        raise UserError(f"{path}: {error}" + (f"; its data: {made}" if made else "")) from None


def _train(config: Any, resume: bool) -> None:
    _quiet()
    from mas_train.loop import train
    from mas_train.run.checkpoint import newest, step_of
    from mas_train.run.metrics_log import headline

    saved = newest(config.folder / "checkpoints") if resume else None
    done = step_of(saved) if saved else 0
    last = ""  # what the last step came to; stands beside what the next one is at
    with progress(config.run.name, config.train.steps, done, unit="steps") as bar:

        def told(what: str) -> None:
            bar.advance(0, note="; ".join(filter(None, (what, last))))

        def watch(metrics: dict[str, Any]) -> None:
            if "eval" in metrics:
                typer.echo(_evaluation(metrics, config.eval.samples))
            nonlocal last
            if "reward" in metrics:
                last = headline(metrics)
            bar.advance(int("reward" in metrics), note=last)
            if metrics["step"] and metrics["step"] % config.train.checkpoint_every == 0:
                _draw(config.folder)

        folder = train(config, resume=resume, watch=watch, told=told)
    _draw(folder)
    typer.echo(f"run, checkpoints and plots: {folder}")


def _evaluation(metrics: dict[str, Any], k: int) -> str:
    found = metrics["eval"]
    scores = [f"{name} {_score(found[name])}" for name in (f"avg@{k}", f"pass@{k}")]
    problem = f" ({found['problem']})" if found["problem"] else ""
    if found["problem"] and found["reward"] is not None:
        scores.append(f"mean team reward {found['reward']:.3f}")
    return f"after {metrics['step']} steps, dev tasks: {', '.join(scores)}{problem}"


def _quiet() -> None:
    """Before torch loads: idle threads must not spin; Hugging Face's own bars say nothing."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from mas_train.engines.hf_model import quiet

    quiet()


def _show(summary: dict[str, Any], k: int) -> None:
    """The demo's table: before and after, whole and by level, and what the gain consists of."""
    from mas_train.demo.report import headline_rows, remarks

    columns = ("", f"avg@{k}", f"pass@{k}")
    table = Table(title=f"held-out problems, {k} samples each, 95 % intervals over questions")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for name, scores in headline_rows(summary, k):
        cells = [_score(score) for score in scores.values()]
        table.add_row(name, *cells, end_section=name.endswith("after"))
    Console(width=80).print(table)
    for remark in remarks(summary, k):
        typer.echo(remark)


def _score(score: dict[str, float] | None) -> str:
    if score is None:
        return "incomplete"
    return f"{score['value']:.1f} [{score['low']:.1f}, {score['high']:.1f}]"


if __name__ == "__main__":
    app()
