"""One optimiser step: ours beside a padded trainer and TRL's GRPOTrainer, on the same rows.

    python -m benchmarks.speed.update

256 rows of a prompt of 16 tokens and a response of log-normal length, one tiny Qwen3. Every side
takes the same step (clipped surrogate, token mean, entropy measured, clipping, AdamW); their
gradient norms are printed so that it can be seen. No micro-batch of any side holds more than
`--budget` tokens, padding included; the first table has each side at its fastest size within it,
the others at the largest size within each `--same-budget`. The padded side fills micro-batches on
the right to their longest row and computes logits everywhere. TRL's rows are there if `trl`
(1.16.0) can be imported; it pads a whole batch to its longest response. Steps of the sides
alternate; CPU time is shown as well, since it suffers less from other processes (with any, set
OMP_WAIT_POLICY=passive). Peak memory is measured in a process per side, at a large vocabulary and
micro-batches of at most `--memory-budget` tokens.

    python -m benchmarks.speed.update --vocabulary 32000 --sigma 0.8 --repeats 3 --budget 4096
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.speed.table import show, spread
from mas_envs.console import progress

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
ROWS, PROMPT, SHORTEST, LONGEST, MEDIAN = 256, 16, 8, 512, 64
TRL = "1.16.0"
SIZES = {
    "ours": (512, 1024, 2048, 4096, 8192, 16384),  # tokens of a pack
    "padded": (1, 2, 4, 8, 16, 32, 64),  # rows of a micro-batch
    "TRL": (1, 2, 4, 8, 16, 32),
}
Tables = dict[str, list[list[str]]]
"""Rows by which sizes they compare."""
Step = Callable[[], float]
"""Takes one optimiser step and returns the gradient's norm."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What every side is given: a model's vocabulary, the rows' number and spread, the budget."""

    sigma: float
    vocabulary: int
    budget: int
    threads: int
    count: int = ROWS

    def rows(self) -> Any:
        """The batch; lengths and tokens from seed 0, advantages from the rewards."""
        from mas_train.experience.rows import Rows

        rng = np.random.default_rng(0)
        drawn = rng.lognormal(math.log(MEDIAN), self.sigma, self.count)
        lengths = np.clip(drawn.round(), SHORTEST, LONGEST).astype(int)
        sampled = [rng.integers(0, self.vocabulary, n).astype(np.int32) for n in lengths]
        return Rows(
            reward=rng.normal(size=self.count),
            prompt=np.arange(self.count) // 8,
            agent=np.full(self.count, "solver"),
            agent_id=np.full(self.count, "solver_0"),
            trajectory=np.arange(self.count),
            turn=np.zeros(self.count, np.int64),
            known=np.ones(self.count, np.bool_),
            cut=np.zeros(self.count, np.bool_),
            event=np.zeros(self.count, np.int64),
            temperature=np.ones(self.count),
            prompt_ids=list(
                rng.integers(0, self.vocabulary, (self.count, PROMPT)).astype(np.int32)
            ),
            ids=sampled,
            log_probs=[np.full(n, -5.0, np.float32) for n in lengths],
        )

    @property
    def tokens(self) -> int:
        """Of all rows, prompts included."""
        return sum(len(ids) + PROMPT for ids in self.rows().ids)

    def model(self) -> Any:
        """The demo's kind of model at the size of the published figures."""
        import torch
        from transformers import Qwen3Config, Qwen3ForCausalLM

        torch.set_num_threads(self.threads)
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=self.vocabulary,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            intermediate_size=192,
            tie_word_embeddings=True,
            max_position_embeddings=1024,
            pad_token_id=0,
        )
        return Qwen3ForCausalLM(config).train()  # type: ignore[no-untyped-call]


def ours(case: Case, size: int) -> Step:
    """`mas_train.learner.learner.Learner` with packs of `size` tokens."""
    from mas_train.config import LossConfig, OptimizerConfig
    from mas_train.learner.learner import Learner

    rows, loss = case.rows(), LossConfig(dual_clip=None)
    learner = Learner(case.model(), OptimizerConfig(lr=1e-6), token_budget=size)
    return lambda: learner.update(rows, rows.reward, loss)["grad_norm"]


def padded(case: Case, size: int) -> Step:
    """Right-padded micro-batches of `size` rows, logits at every place."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    model, rows = case.model(), case.rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    tokens = [
        torch.tensor(np.concatenate(pair)) for pair in zip(rows.prompt_ids, rows.ids, strict=True)
    ]
    batches = []
    for start in range(0, case.count, size):
        chosen = tokens[start : start + size]
        ids = pad_sequence(chosen, batch_first=True).long()
        mask = pad_sequence([torch.ones(len(one)) for one in chosen], batch_first=True)
        batches.append((ids, mask, torch.tensor(rows.reward[start : start + size]).float()))
    total = sum(len(one) for one in rows.ids)

    def step() -> float:
        for ids, mask, advantage in batches:
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
            log_probs = logits.log_softmax(-1)
            chosen = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
            with torch.no_grad():
                entropy = -(log_probs.exp() * log_probs).sum(-1)
            trained = mask[:, 1:].clone()
            trained[:, : PROMPT - 1] = 0
            ratio = (chosen - chosen.detach()).exp()
            weighed = advantage[:, None]
            losses = -torch.minimum(ratio * weighed, ratio.clamp(0.8, 1.2) * weighed)
            torch.autograd.backward((losses * trained).sum() / total)
            float((entropy * trained).sum())
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        optimizer.zero_grad()
        return norm

    return step


def trl(case: Case, size: int) -> Step:
    """TRL's own loss on the batch as it prepares it, in micro-batches of `size` rows."""
    import torch

    from mas_train.demo.tiny_model import build_tokenizer

    library, tools, datasets = map(
        importlib.import_module, ("trl", "trl.trainer.utils", "datasets")
    )
    rows, count = case.rows(), case.count // size
    args = library.GRPOConfig(
        output_dir=str(Path(tempfile.gettempdir()) / "nothing-is-saved"),
        per_device_train_batch_size=size,
        gradient_accumulation_steps=count,
        num_generations=8,
        max_completion_length=LONGEST,
        beta=0.0,
        loss_type="dapo",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = library.GRPOTrainer(
        model=case.model(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["1+1"] * case.count}),
        processing_class=build_tokenizer(),
    )
    model = trainer.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    trainer.current_gradient_accumulation_steps = count
    completions = [torch.tensor(one).long() for one in rows.ids]
    mask = tools.pad([torch.ones(len(one)) for one in completions], 0)
    batch = {
        "prompt_ids": torch.tensor(np.stack(rows.prompt_ids)).long(),
        "prompt_mask": torch.ones(case.count, PROMPT),
        "completion_ids": tools.pad(completions, 0),
        "completion_mask": mask,
        "advantages": torch.tensor(rows.reward).float(),
        "num_items_in_batch": mask.sum(),
    }

    def step() -> float:
        for part in tools.split_tensor_dict(batch, count):
            trainer.accelerator.backward(trainer.compute_loss(model, part))
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        optimizer.zero_grad()
        return norm

    return step


SIDES = {"ours": ours, "padded": padded, "TRL": trl}


def fitting(case: Case, side: str, budget: int) -> list[int]:
    """The sizes at which no micro-batch of the side exceeds the budget; the smallest always."""
    lengths = [len(ids) + PROMPT for ids in case.rows().ids]
    longest = [max(lengths)] if side == "TRL" else lengths  # TRL pads all rows alike

    def tokens(size: int) -> int:
        if side == "ours":
            return size
        return size * max(max(longest[i : i + size]) for i in range(0, len(longest), size))

    found = [size for size in SIZES[side] if tokens(size) <= budget]
    return found or [SIZES[side][0]]


def seconds(step: Step) -> tuple[float, float]:
    """Wall and CPU time of one step."""
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(case: Case, sides: Sequence[str], same: Sequence[int], repeats: int) -> Tables:
    """Tokens per second of each side, its steps taken in turn with the others'."""
    sizes = {side: fitting(case, side, case.budget) for side in sides}
    total = sum(map(len, sizes.values())) + repeats
    steps: dict[tuple[str, int], Step] = {}
    norms: dict[tuple[str, int], float] = {}
    first: dict[tuple[str, int], float] = {}
    with progress(f"σ {case.sigma}", total=total, unit="rounds") as bar:
        for side in sides:
            for size in sizes[side]:
                step = steps[side, size] = SIDES[side](case, size)
                norms[side, size] = step()
                first[side, size] = seconds(step)[1]
                bar.advance(1)
        fastest = [(side, min(sizes[side], key=lambda size: first[side, size])) for side in sides]
        rules = {"each side's fastest size": fastest}
        for budget in same:
            largest = [(side, fitting(case, side, budget)[-1]) for side in sides]
            rules[f"the largest size in {budget:,} tokens"] = largest
        taken: dict[tuple[str, int], list[tuple[float, float]]]
        taken = {one: [] for chosen in rules.values() for one in chosen}
        for _ in range(repeats):
            for one, times in taken.items():
                times.append(seconds(steps[one]))
            bar.advance(1)
    tables: Tables = {}
    for rule, chosen in rules.items():
        ours_wall, ours_cpu = _medians(taken[chosen[0]])
        for side, size in chosen:
            wall, cpu = _medians(taken[side, size])
            columns = [
                f"{case.sigma}",
                f"{size:,}",
                spread([case.tokens / one for one, _ in taken[side, size]], 0),
                f"{wall / ours_wall:.2f}",
                f"{case.tokens / cpu:,.0f}",
                f"{cpu / ours_cpu:.2f}",
                f"{norms[side, size]:.5f}",
            ]
            tables.setdefault(rule, []).append([side, *columns])
    return tables


def _medians(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of wall and of CPU time."""
    wall, cpu = zip(*times, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def _status_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields[field].split()[0]) * 1024 / 1e6


def peak(side: str, case: Case, size: int) -> float:
    """MB (10^6 bytes) by which a step lifts this process above what it held with the model.

    A step with a few tokens comes first: the code of the libraries counts as memory once it ran.
    """
    SIDES[side](dataclasses.replace(case, vocabulary=266, count=8), SIZES[side][0])()
    step = SIDES[side](case, size)
    before = _status_mb("VmRSS")
    step()
    return _status_mb("VmHWM") - before


def memory(case: Case, sides: Sequence[str]) -> list[list[str]]:
    """Table rows: the peak of each side, in a new process, at the largest size that fits."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, tuple[int, float]] = {}
    for side in sides:
        size = fitting(case, side, case.budget)[-1]
        with ProcessPoolExecutor(1, mp_context=context) as process:
            found[side] = (size, process.submit(peak, side, case, size).result())
    ours_mb = found["ours"][1]
    return [
        [side, f"{size:,}", f"{mb:,.0f}", f"{mb / ours_mb:.2f}"]
        for side, (size, mb) in found.items()
    ]


@app.command(epilog="Example: python -m benchmarks.speed.update --sigma 0.8 --repeats 5")
def main(
    sigma: Annotated[list[float], typer.Option(help="Of the lengths' logarithm. Repeatable.")] = [  # noqa: B006
        0.8,
        0.4,
        1.2,
    ],
    vocabulary: Annotated[int, typer.Option(min=256)] = 266,
    same_budget: Annotated[
        list[int], typer.Option(min=1024, help="Tokens of a micro-batch that all fill. Repeatable.")
    ] = [2048, 4096],  # noqa: B006
    memory_vocabulary: Annotated[int, typer.Option(min=256)] = 32_000,
    budget: Annotated[int, typer.Option(min=1024, help="Tokens of a micro-batch.")] = 16_384,
    memory_budget: Annotated[int, typer.Option(min=1024, help="The same for memory.")] = 2048,
    repeats: Annotated[int, typer.Option(min=1)] = 7,
    threads: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Tokens per second of one optimiser step, and its peak memory with a large vocabulary."""
    sides = [side for side in SIDES if side != "TRL" or importlib.util.find_spec("trl")]
    tables: Tables = {}
    same = [tokens for tokens in same_budget if tokens <= budget]
    for one in sigma:
        found = compare(Case(one, vocabulary, budget, threads), sides, same, repeats)
        for rule, rows in found.items():
            tables.setdefault(rule, []).extend(rows)
    for rule, rows in tables.items():
        show(
            f"{rule}: {ROWS} rows, vocabulary {vocabulary:,}, {threads} threads, {repeats} steps",
            ["side", "σ", "size", "tokens/s", "× time", "per CPU s", "× CPU", "gradient"],
            rows,
        )
    if sys.platform == "linux":
        case = Case(sigma[0], memory_vocabulary, memory_budget, threads, 32)
        show(
            f"peak memory above the model, {case.count} rows, vocabulary {memory_vocabulary:,}",
            ["side", "size", "MB", "× ours"],
            memory(case, sides),
        )
    if "TRL" not in sides:
        typer.echo(f"trl cannot be imported here: no row for it (pip install trl=={TRL})")


if __name__ == "__main__":
    app()
