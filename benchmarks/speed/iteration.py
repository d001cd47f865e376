"""A whole training iteration, rollout and update: ours beside TRL's GRPOTrainer.

    python -m benchmarks.speed.iteration

Both start from the demo's model and train it as their users would: 16 sums, 8 completions of each,
one optimizer step; no reference model, no KL, logs and episodes where they write any. Iterations
alternate within one process and its threads. Ours are `mas_train.loop.train_step` (the environment,
its grader, the transformers engine, credit, update, weights pushed and probed, episodes and metrics
written). TRL (1.16.0; its rows are there if it can be imported) is `GRPOTrainer.train`, measured
from the end of a step to the end of the next, with its logs and checkpoints off and a reward that
costs next to nothing. Each side runs at its own fastest micro-batch. Time is per 1,000 completion
tokens, those counted that a side really sampled.

natural: completions end where the model ends them, at `math-single-v0`, which has one agent like
TRL. A third row is our team of two models at `math-v0`.

mixed: log-normal lengths, the same on both sides, row for row. Our requests get theirs as
`max_tokens` from an engine that stops at nothing; TRL's `generate` gets a logits processor that
bars the stop token before the row's last place and leaves only it there. Right is an answer with
an even checksum, so that nearly all groups have a gradient. (Without one, as many groups of sums
are, rows cost our update nothing; TRL computes them.)

CPU time suffers less from other processes (set OMP_WAIT_POLICY=passive, or threads that wait count
as busy). The parts are wall time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from benchmarks.speed.iteration_sides import Case, Iteration, ours, trl
from benchmarks.speed.table import show, spread
from mas_envs.console import progress

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
TRL = "1.16.0"
SIZES = {
    "ours": (2048, 4096, 8192, 16384),  # tokens of a pack
    "TRL": (32, 64, 128),  # rows of a micro-batch; fewer are slower throughout
}
TRIED = 2  # iterations that decide on a size, after a first that decides nothing


def cpu(taken: Sequence[Iteration]) -> float:
    """Median CPU seconds per 1,000 completion tokens."""
    return statistics.median(1000 * one.cpu / one.tokens for one in taken)


def candidates(case: Case, side: str) -> list[int]:
    """The sizes that come into question: TRL's must divide the completions."""
    if side == "ours":
        return list(SIZES["ours"])
    return [size for size in SIZES["TRL"] if not case.rows % size] or [case.rows]


def best(case: Case, side: str, tick: Callable[[], None]) -> int:
    """The side's fastest size."""
    found = {}
    for size in candidates(case, side):
        if side == "ours":
            with ours(case, "math-single-v0", size) as iterate:
                taken = [iterate() for _ in range(TRIED + 1)]
        else:
            taken = trl(case, size, TRIED + 1, lambda: None)
        found[size] = cpu(taken[1:])
        tick()
    return min(found, key=lambda size: found[size])


def compare(case: Case, repeats: int, sizes: dict[str, int]) -> dict[str, list[Iteration]]:
    """The iterations of each side, taken in turn; the first of each is not counted."""
    taken: dict[str, list[Iteration]] = {"ours": []}
    with contextlib.ExitStack() as stack:
        sides = {"ours": stack.enter_context(ours(case, "math-single-v0", sizes["ours"]))}
        if case.sigma is None:
            taken["ours, two agents"] = []
            sides["ours, two agents"] = stack.enter_context(ours(case, "math-v0", sizes["ours"]))

        def each() -> None:
            for side, iterate in sides.items():
                taken[side].append(iterate())

        if "TRL" in sizes:
            taken["TRL"] = trl(case, sizes["TRL"], repeats + 1, each)
        else:
            for _ in range(repeats + 1):
                each()
    return {side: iterations[1:] for side, iterations in taken.items()}


def lines(taken: dict[str, list[Iteration]], sizes: dict[str, int]) -> Iterator[list[str]]:
    """Table rows: one a side."""
    own = taken["ours"]
    for side, iterations in taken.items():
        wall = [1000 * one.wall / one.tokens for one in iterations]
        used = [1000 * one.cpu / one.tokens for one in iterations]
        rollout = statistics.median(1000 * one.rollout / one.tokens for one in iterations)
        own_wall = statistics.median(1000 * one.wall / one.tokens for one in own)
        yield [
            side,
            f"{sizes[side.split(',')[0]]:,}",
            f"{statistics.mean(one.tokens for one in iterations):,.0f}",
            spread(wall, 3),
            f"{statistics.median(wall) / own_wall:.2f}",
            spread(used, 3),
            f"{statistics.median(used) / cpu(own):.2f}",
            f"{rollout:.3f}",
            f"{statistics.median(wall) - rollout:.3f}",
        ]


def spread_of(lengths: str) -> float | None:
    """σ of the lengths' logarithm; None for natural ones."""
    try:
        return None if lengths == "natural" else float(lengths)
    except ValueError:
        raise typer.BadParameter(f"--lengths {lengths}: natural, or a number") from None


@app.command(epilog="Example: python -m benchmarks.speed.iteration --lengths 0.8 --repeats 5")
def main(
    lengths: Annotated[
        list[str], typer.Option(help="natural, or the σ of log-normal ones. Repeatable.")
    ] = ["natural", "0.8"],  # noqa: B006
    prompts: Annotated[int, typer.Option(min=1, help="Of an iteration, 8 completions each.")] = 16,
    repeats: Annotated[int, typer.Option(min=1, help="Iterations of each side.")] = 10,
    threads: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Seconds per 1,000 completion tokens of whole iterations, and their ratio."""
    from mas_train.engines.hf_model import quiet

    quiet()
    present = [side for side in SIZES if side != "TRL" or importlib.util.find_spec("trl")]
    for sigma in map(spread_of, lengths):
        case = Case(sigma, threads, prompts)
        kind = "natural" if sigma is None else f"σ {sigma:g}"
        trials = sum(len(candidates(case, side)) for side in present) + 1
        with progress(kind, total=trials, unit="trials") as bar:
            sizes = {side: best(case, side, lambda: bar.advance(1)) for side in present}
            taken = compare(case, repeats, sizes)
            bar.advance(1)
        show(
            f"{kind} lengths: seconds per 1,000 completion tokens, {case.rows} completions an "
            f"iteration, {threads} threads, median of {repeats}",
            ["side", "size", "tokens", "wall", "× wall", "CPU", "× CPU", "rollout", "update"],
            lines(taken, sizes),
        )
    if "TRL" not in present:
        typer.echo(f"trl cannot be imported here: no row for it (pip install trl=={TRL})")


if __name__ == "__main__":
    app()
