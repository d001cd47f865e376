"""The two sides of `benchmarks.speed.iteration`: our training step, and TRL's GRPOTrainer."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MODEL, SEED, LR = "mas-gym/demo", 0, 1e-6
SHORTEST, LONGEST, MEDIAN = 8, 512, 64  # tokens of a response of mixed lengths


class Iteration(NamedTuple):
    """What one took: completion tokens, seconds of the clock, the CPU and the rollout alone."""

    tokens: int
    wall: float
    cpu: float
    rollout: float


class Mark:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def iteration(self, tokens: int, rollout: float) -> Iteration:
        """What has passed."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return Iteration(tokens, wall, cpu, rollout)


@dataclasses.dataclass(frozen=True)
class Case:
    """What both sides are given; without `sigma` the model ends its completions."""

    sigma: float | None
    threads: int
    prompts: int = 16
    group: int = 8

    @property
    def rows(self) -> int:
        """Completions of an iteration."""
        return self.prompts * self.group

    @property
    def max_tokens(self) -> int:
        """The most tokens of a completion; 40 as in the demo."""
        return 40 if self.sigma is None else LONGEST

    def lengths(self, iteration: int) -> Any:
        """Tokens [rows] of each completion of an iteration."""
        assert self.sigma is not None
        rng = np.random.default_rng([SEED, iteration])
        drawn = rng.lognormal(np.log(MEDIAN), self.sigma, self.rows)
        return np.clip(drawn.round(), SHORTEST, LONGEST).astype(int)


def even(text: str) -> bool:
    """Whether a completion of forced length counts as right."""
    return zlib.crc32(text.encode()) % 2 == 0


# ---- ours ---------------------------------------------------------------------------------------


class Forced:
    """An engine as a policy whose responses have the lengths [rows] of the iteration."""

    def __init__(self, engine: Any, case: Case) -> None:
        self.engine, self.case, self.lengths = engine, case, case.lengths(0)
        engine.stop_ids = frozenset()

    async def act(self, request: Any) -> Any:
        """The engine's answer."""
        import msgspec

        group, sample, _ = request.key
        length = int(self.lengths[group * self.case.group + sample])
        sampling = msgspec.structs.replace(request.sampling, max_tokens=length)
        return await self.engine.act(msgspec.structs.replace(request, sampling=sampling))


def configuration(case: Case, env: str, budget: int, folder: str) -> Any:
    """The run of one agent, or of a team of two models, as the demo has it."""
    from mas_train.config import resolve

    roles = {"math-single-v0": ["solver"], "math-v0": ["solver", "verifier"]}[env]
    model = {
        "path": MODEL,
        "optimizer": {"lr": LR},
        "engine": {"max_model_len": 64 + case.max_tokens},
    }
    return resolve(
        {
            "run": {"dir": folder, "threads": case.threads, "seed": SEED},
            "env": {"id": env, "prompts": "tiny"},
            "tasks": {name: {"source": "arith", "split": name} for name in ("train", "dev")},
            "agents": {role: {"model": role} for role in roles},
            "models": dict.fromkeys(roles, model),
            "rollout": {
                "group_size": case.group,
                "prompts_per_step": case.prompts,
                "concurrency": case.rows,
                "max_tokens": case.max_tokens,
            },
            "estimator": {"preset": "grpo" if len(roles) == 1 else "drmas"},
            "train": {"token_budget": budget},
        }
    )


@contextlib.contextmanager
def ours(case: Case, env_id: str, budget: int) -> Iterator[Callable[[], Iteration]]:
    """A run of mas_train; each call is a step of it."""
    from mas_envs import EpisodeWriter
    from mas_envs.failure_watch import FailureWatch
    from mas_train.environment import make_env, run_tasks
    from mas_train.loop import train_step
    from mas_train.run.metrics_log import MetricsLog
    from mas_train.run.run_folder import RunState
    from mas_train.run.stopping import StopSignal
    from mas_train.team import Team

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        config = configuration(case, env_id, budget, folder)
        env, (tasks, _), team = make_env(config), run_tasks(config), Team(config)
        stack.enter_context(contextlib.closing(team))
        if case.sigma is not None:
            forced = Forced(team.engines["solver"], case)
            team.policies = {"solver": forced}
            env.tools = {"grade": lambda batch: [{"correct": even(a["response"])} for a in batch]}
        writer = stack.enter_context(EpisodeWriter(Path(folder) / "episodes"))
        log = stack.enter_context(MetricsLog(Path(folder)))
        stop = stack.enter_context(StopSignal())
        state, failures, steps = RunState(), FailureWatch(), itertools.count()
        team.sync(0)

        def iterate() -> Iteration:
            step, before, mark = next(steps), team.sampled_tokens, Mark()
            if case.sigma is not None:
                forced.lengths = case.lengths(step)
            metrics = train_step(
                config, env, team, tasks, step, state, writer, stop, failures, lambda what: None
            )
            log.write(metrics)
            return mark.iteration(team.sampled_tokens - before, metrics["seconds"]["rollout"])

        yield iterate


# ---- TRL ----------------------------------------------------------------------------------------


def trl(case: Case, size: int, steps: int, between: Callable[[], None]) -> list[Iteration]:
    """`steps` of one `GRPOTrainer.train` in micro-batches of `size` rows; `between` after each."""
    library, transformers = importlib.import_module("trl"), importlib.import_module("transformers")
    done: list[Iteration] = []
    parts: dict[str, Any] = {"tokens": 0, "rollout": 0.0, "mark": None}

    class Watch(transformers.TrainerCallback):  # type: ignore[name-defined, misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            parts["mark"] = Mark()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            done.append(parts["mark"].iteration(parts["tokens"], parts["rollout"]))
            between()
            parts["mark"] = Mark()

    folder = tempfile.TemporaryDirectory()
    trainer = _trainer(case, size, steps, library, folder.name)
    trainer.add_callback(Watch)
    trainer.remove_callback(transformers.PrinterCallback)
    score, generate = trainer._generate_and_score_completions, trainer.model.generate

    def scored(inputs: Any) -> Any:
        start = time.perf_counter()
        batch = score(inputs)
        parts["rollout"] = time.perf_counter() - start
        parts["tokens"] = int(batch["completion_mask"].sum())
        return batch

    def forced(**options: Any) -> Any:
        processor = ending(case.lengths(len(done)), options["input_ids"].shape[1], trainer)
        return generate(**options, logits_processor=[processor])

    trainer._generate_and_score_completions = scored
    if case.sigma is not None:
        trainer.model.generate = forced
    import torch

    torch.set_num_threads(case.threads)
    with folder:
        trainer.train()
    return done


def ending(lengths: Any, prompt: int, trainer: Any) -> Callable[[Any, Any], Any]:
    """A logits processor: each row ends with its stop token at its length, and not before."""
    import torch

    last, end = torch.tensor(lengths) - 1, trainer.processing_class.eos_token_id

    def process(ids: Any, scores: Any) -> Any:
        ends = last == ids.shape[1] - prompt
        scores[:, end] = torch.where(ends, 0.0, -torch.inf)
        scores[ends, :end] = -torch.inf
        scores[ends, end + 1 :] = -torch.inf
        return scores

    return process


def _trainer(case: Case, size: int, steps: int, library: Any, folder: str) -> Any:
    from mas_envs import load_tasks
    from mas_train.engines.hf_model import load_pretrained

    model, tokenizer = load_pretrained(MODEL)
    datasets = importlib.import_module("datasets")
    args = library.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=case.rows // size,
        num_generations=case.group,
        max_completion_length=case.max_tokens,
        max_steps=steps,
        learning_rate=LR,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )

    def right(completions: Any, answer: Any, **_: Any) -> list[float]:
        said = [completion[0]["content"] for completion in completions]
        if case.sigma is not None:
            return [float(even(text)) for text in said]
        boxes = [f"\\boxed{{{gold}}}" for gold in answer]
        return [float(box in text) for box, text in zip(boxes, said, strict=True)]

    tasks = load_tasks(source="arith", split="train")
    prompts = [[{"role": "user", "content": task.question}] for task in tasks]
    return library.GRPOTrainer(
        model=model,
        reward_funcs=right,
        args=args,
        train_dataset=datasets.Dataset.from_dict(
            {"prompt": prompts, "answer": [task.answer for task in tasks]}
        ),
        processing_class=tokenizer,
    )
