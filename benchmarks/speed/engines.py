"""How fast engines sample, and how much of that rollouts through the environments keep.

    python -m benchmarks.speed.engines batching
    python -m benchmarks.speed.engines rollouts
    python -m benchmarks.speed.engines rollouts --engine vllm

`batching`: the demo's small model on one thread, responses of mixed length (log-normal, and as the
model ends them), tokens per CPU second: our continuous batching, transformers' `model.generate` in
batches of its best size (a batch lasts as long as its longest response), and transformers' own
continuous batching.

`rollouts`: the tokens per second of math-v0 with as many concurrent episodes as the engine has
rows, beside the same engine asked the very same requests by as many workers that do nothing else.
Both encode every prompt, and are measured from when all rows are taken until the last episode, or
request, has begun: after that an engine runs empty on either side. The seconds are the clock's for
the fake, which computes nothing, and this process's CPU seconds for engines that compute in it,
which other processes do not change. What an environment costs it costs once a turn, so the share
kept depends on the length of turns where nothing overlaps. With `--own-process`, as on a GPU, vLLM
steps in another process while episodes go on in this one: clock seconds again, on two free cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.speed.table import show
from mas_envs import Message, Request, Response, Sampling, make, rollout
from mas_envs.console import progress
from mas_envs.workflow import WorkflowEnv

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
LONGEST = 256  # tokens of a response
PAGE = 32  # tokens of a page of transformers' continuous batching

# ---- batching -----------------------------------------------------------------------------------


def requests(count: int, seed: int, sigma: float | None) -> list[Request]:
    """Sums to add up; without σ the model ends its responses, with it they have drawn lengths."""
    rng = np.random.default_rng(seed)
    lengths = np.full(count, 40)
    if sigma is not None:
        lengths = np.clip(rng.lognormal(np.log(32), sigma, count), 4, LONGEST).astype(int)
    return [
        Request(
            agent="solver_0",
            role="solver",
            messages=(Message("user", "+".join(map(str, rng.integers(1, 10, 3)))),),
            sampling=Sampling(max_tokens=int(length)),
            seed=i,
            key=(i, 0, 0),
        )
        for i, length in enumerate(lengths)
    ]


def ours(asked: Sequence[Request], natural: bool) -> int:
    """Tokens sampled by `TransformersEngine`."""
    from mas_train.engines.transformers import TransformersEngine

    engine = TransformersEngine.from_pretrained("mas-gym/demo", max_model_len=512)
    if not natural:
        engine.stop_ids = frozenset()
    for one in asked:
        engine.chat.encode(one.messages)  # cached; the other sides get ids too

    async def everyone() -> list[Response]:
        return await asyncio.gather(*(engine.act(one) for one in asked))

    with timed():
        asyncio.run(everyone())
    return engine.stats.tokens


def generate(asked: Sequence[Request], natural: bool, size: int) -> int:
    """Tokens sampled by `model.generate` in batches, in order; every row stops at its own limit."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    model, chat, prompts = _model(asked)

    class Limits(StoppingCriteria):
        def __init__(self, limits: list[int]) -> None:
            self.limits, self.made = torch.tensor(limits), 0

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            self.made += 1
            return self.made >= self.limits

    tokens = 0
    with timed(), torch.inference_mode():
        for start in range(0, len(asked), size):
            limits = [one.sampling.max_tokens for one in asked[start : start + size]]
            part = prompts[start : start + size]
            width = max(map(len, part))
            pad = [[256] * (width - len(one)) for one in part]
            rows = torch.tensor([[*left, *one] for left, one in zip(pad, part, strict=True)])
            seen = torch.tensor(
                [[*[0] * len(left), *[1] * len(one)] for left, one in zip(pad, part, strict=True)]
            )
            made = model.generate(
                input_ids=rows,
                attention_mask=seen,
                do_sample=True,
                top_k=0,
                max_new_tokens=max(limits),
                eos_token_id=sorted(chat.stop_ids) if natural else -1,
                pad_token_id=256,
                stopping_criteria=StoppingCriteriaList([Limits(limits)]),
            )[:, width:]
            for row, limit in zip(made.tolist(), limits, strict=True):
                ends = [i for i, token in enumerate(row) if natural and token in chat.stop_ids]
                tokens += min([limit, *(i + 1 for i in ends[:1])])
    return tokens


def theirs(asked: Sequence[Request], natural: bool) -> int:
    """Tokens sampled by transformers' continuous batching, with room for all rows at once."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    model, chat, prompts = _model(asked)
    generation = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=LONGEST,
        do_sample=True,
        top_k=0,
        pad_token_id=256,
        eos_token_id=sorted(chat.stop_ids) if natural else -1,
    )
    pages = len(asked) * ((LONGEST + 32) // PAGE + 1)
    batching = ContinuousBatchingConfig(num_blocks=pages, max_batch_tokens=1024, page_size=PAGE)
    tokens = 0
    with timed():
        manager = model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=batching
        )
        manager.start()
        for i, (one, prompt) in enumerate(zip(asked, prompts, strict=True)):
            limit = one.sampling.max_tokens
            manager.add_request(prompt, request_id=str(i), max_new_tokens=limit)
        finished = 0
        while finished < len(asked):
            result = manager.get_result(timeout=60)
            if result is None:
                raise RuntimeError("transformers' continuous batching gave no result in a minute")
            if result.is_finished():
                finished += 1
                tokens += len(result.generated_tokens)
        manager.stop(block=True)
    return tokens


def _model(asked: Sequence[Request]) -> tuple[Any, Any, list[list[int]]]:
    """The model, its chat and the prompts, outside of what is measured."""
    from mas_train.engines.chat import load_chat
    from mas_train.engines.hf_model import load_pretrained

    model, _ = load_pretrained("mas-gym/demo")
    chat = load_chat("mas-gym/demo", name="demo")
    return model.train(False), chat, [chat.encode(one.messages).tolist() for one in asked]


_cpu_s: list[float] = []


@contextmanager
def timed() -> Iterator[None]:
    """Note the CPU seconds of what runs inside."""
    start = time.process_time()
    yield
    _cpu_s.append(time.process_time() - start)


@app.command(epilog="Example: python -m benchmarks.speed.engines batching --repeats 3")
def batching(
    count: Annotated[int, typer.Option(min=1, help="Requests, all there from the start.")] = 256,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Tokens per CPU second of three ways to sample responses of mixed length."""
    import torch

    from mas_train.engines.hf_model import quiet

    quiet()
    torch.set_num_threads(1)
    sides: dict[str, Callable[[Sequence[Request], bool], int]] = {
        "our continuous batching": ours,
        "transformers' continuous batching": theirs,
    }
    for size in (32, 64, 128, 256):
        sides[f"model.generate, {size} at once"] = partial(generate, size=size)
    kinds = {"as the model ends": None, "log-normal, σ 0.4": 0.4, "σ 0.8": 0.8, "σ 1.2": 1.2}
    rates: dict[tuple[str, str], list[float]] = {}
    with progress("sampling", total=repeats * len(kinds) * len(sides), unit="runs") as bar:
        for repeat in range(repeats):
            for kind, sigma in kinds.items():
                asked = requests(count, repeat, sigma)
                for side, run in sides.items():
                    tokens = run(asked, sigma is None)
                    rates.setdefault((side, kind), []).append(tokens / _cpu_s.pop())
                    bar.advance(1)
    best = {
        kind: max(float(np.median(rates[side, kind])) for side in sides if side.startswith("model"))
        for kind in kinds
    }
    show(
        f"tokens per CPU second, median of {repeats}; {count} requests, one thread",
        ["", *kinds],
        [[side, *(f"{np.median(rates[side, kind]):,.0f}" for kind in kinds)] for side in sides],
    )
    show(
        "beside the best model.generate",
        ["", *kinds],
        [
            [side, *(f"{np.median(rates[side, kind]) / best[kind]:.2f} ×" for kind in kinds)]
            for side in list(sides)[:2]
        ],
    )


# ---- rollouts -----------------------------------------------------------------------------------


class Watched:
    """A policy that notes what is asked, and what had been sampled when an episode began."""

    def __init__(self, engine: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self.engine, self.clock = engine, clock
        self.asked: list[Request] = []
        self.began: list[tuple[float, int]] = []

    async def act(self, request: Request) -> Response:
        """The engine's answer."""
        self.asked.append(request)
        if request.key[2] == 0:
            self.note()
        response: Response = await self.engine.act(request)
        return response

    def note(self) -> None:
        """Another one has begun."""
        self.began.append((self.clock(), self.engine.stats.tokens))

    def rate(self, rows: int) -> float:
        """Tokens per second while all rows were taken."""
        (start, before), (end, after) = self.began[rows], self.began[-1]
        return (after - before) / (end - start)


async def through_environments(
    watched: Watched, env: WorkflowEnv, samples: int, rows: int, sampling: Sampling
) -> None:
    """Play every task `samples` times."""
    playing: AsyncIterator[Any] = rollout(
        env, watched, list(env.tasks), samples=samples, concurrency=rows, sampling=sampling
    )
    async for _ in playing:
        pass


async def raw(watched: Watched, asked: Sequence[Request], rows: int) -> None:
    """Ask the same, by `rows` workers."""
    left = iter(asked)

    async def work() -> None:
        for request in left:
            watched.note()
            await watched.engine.act(request)

    await asyncio.gather(*(work() for _ in range(rows)))


@app.command(epilog="Example: python -m benchmarks.speed.engines rollouts --engine fake")
def rollouts(
    engine: Annotated[str, typer.Option(help="fake, vllm or transformers.")] = "fake",
    rows: Annotated[int, typer.Option(min=1, help="Concurrent episodes, and rows.")] = 512,
    tasks: Annotated[int, typer.Option(min=1)] = 512,
    samples: Annotated[int, typer.Option(min=1, help="Episodes per task.")] = 4,
    tokens_per_second: Annotated[float, typer.Option(min=1.0, help="Of the fake.")] = 20_000.0,
    mean_tokens: Annotated[float, typer.Option(min=1.0, help="Of the fake's responses.")] = 200.0,
    turn_tokens: Annotated[
        int, typer.Option(min=0, help="Of each turn of a real engine; 0: as the model ends it.")
    ] = 0,
    own_process: Annotated[
        bool, typer.Option("--own-process", help="Of vllm, as on a GPU.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Tokens per second through math-v0, beside the bare engine on the same requests."""
    made = _engine(engine, rows, tokens_per_second, mean_tokens, own_process)
    here = engine != "fake" and not own_process
    clock = time.process_time if here else time.perf_counter
    env: WorkflowEnv = make(
        "math-v0", tasks={"source": "arith", "split": "train", "n": tasks}, prompts="tiny"
    )
    sampling = Sampling(max_tokens=2048 if engine == "fake" else turn_tokens or 40)
    if turn_tokens:
        made.stop_ids = frozenset()
    table: list[Sequence[str]] = []
    shares: list[float] = []
    asyncio.run(through_environments(Watched(made), env, 1, rows, sampling))  # all is loaded
    with progress("rollouts", total=2 * repeats, unit="runs") as bar:
        for _ in range(repeats):
            through, bare = Watched(made, clock), Watched(made, clock)
            made.chat.encode.cache_clear()
            asyncio.run(through_environments(through, env, samples, rows, sampling))
            bar.advance(1)
            made.chat.encode.cache_clear()
            asyncio.run(raw(bare, through.asked, rows))
            bar.advance(1)
            rates = through.rate(rows), bare.rate(rows)
            shares.append(rates[0] / rates[1])
            table.append([*(f"{rate:,.0f}" for rate in rates), f"{shares[-1]:.1%}"])
    table.append(["", "median", f"{np.median(shares):.1%}"])
    length = made.stats.tokens / made.stats.requests
    show(
        f"tokens per {'CPU ' if here else ''}second, {engine}, {rows} rows, "
        f"{len(through.asked):,} requests, {length:.0f} tokens a turn",
        ["through math-v0", "bare engine", "share kept"],
        table,
    )
    if engine == "vllm":
        made.close()


def _engine(
    name: str, rows: int, tokens_per_second: float, mean_tokens: float, own_process: bool
) -> Any:
    if name == "fake":
        from mas_train.engines.fake import FakeEngine

        return FakeEngine(
            max_rows=rows, tokens_per_second=tokens_per_second, mean_tokens=mean_tokens
        )
    if name == "vllm":
        from mas_train.engines.vllm import VLLMEngine

        return VLLMEngine(
            "mas-gym/demo", max_model_len=512, max_rows=rows, own_process=own_process,
            overlap=own_process,
        )  # fmt: skip
    if name != "transformers":
        raise typer.BadParameter(f"--engine {name}: fake, vllm or transformers")
    import torch

    from mas_train.engines.transformers import TransformersEngine

    torch.set_num_threads(1)
    return TransformersEngine.from_pretrained("mas-gym/demo", max_model_len=512, max_rows=rows)


if __name__ == "__main__":
    app()
