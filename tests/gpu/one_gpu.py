"""What only a GPU can show, in one script of a few minutes, without network: `make test-gpu`.

    python -m tests.gpu.one_gpu          # Qwen3-0.6B's configuration on one GPU, engine vllm
    python -m tests.gpu.one_gpu --cpu    # the same steps with a tiny one, engine transformers

Random weights are built on the spot. Then: gradients by varlen attention, packed log-probs,
optimizer offload, one rank of FSDP; three drmas steps of a solver and a verifier in bfloat16, whose
engines share the device with their learners, asleep while those work; a probe after every push, new
rows under a tied embedding among them; memory against `mas-train plan`. One table; exit code 1 and
the reasons if anything is off. Without a GPU it says so and ends with 0.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer


def run(device, engine, folder, *, sharded=True):
    """All checks in that order; the report."""
    import torch

    from mas_train.engines.hf_model import load_pretrained, quiet
    from tests.gpu import checks
    from tests.gpu.meters import Gpu, Meter
    from tests.gpu.random_model import REAL, SMALL, build
    from tests.gpu.report import Report
    from tests.gpu.training import run_training

    quiet()
    on_gpu = device == "cuda"
    gpu = Gpu() if on_gpu else None
    where = torch.cuda.get_device_name() if on_gpu else "CPU, tiny model"
    report = Report(f"{where}; engine {engine}; torch {torch.__version__}")
    started = time.perf_counter()
    with Meter(gpu) as meter:
        model = build(folder / "model", REAL if on_gpu else SMALL, device)
        _, tokenizer = load_pretrained(model)
        rows, advantages = checks.made_rows(tokenizer, *((64, 512) if on_gpu else (12, 64)))
        for what, check, args in (
            ("attention", checks.check_attention, (rows, advantages)),
            ("log-probs", checks.check_log_probs, (rows,)),
            ("optimizer offload", checks.check_offload, ()),
            ("FSDP with one rank", checks.check_sharded, (rows, advantages)),
        ):
            if check is checks.check_sharded and not sharded:
                report.add(what, "left out")
                continue
            with report.trying(what):
                check(report, model, device, *args)
            if on_gpu:
                torch.cuda.empty_cache()
        with report.trying("training"):
            run_training(report, model, engine, folder, meter)
    report.add("seconds in all", f"{time.perf_counter() - started:.0f}")
    return report


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    cpu: Annotated[bool, typer.Option("--cpu", help="The same steps, tiny, on a CPU.")] = False,
    engine: Annotated[str | None, typer.Option(help="vllm or transformers.")] = None,
) -> None:
    """Check the GPU path of the trainer on one GPU."""
    import torch

    if not cpu and not torch.cuda.is_available():
        typer.echo("no GPU is here (torch.cuda), so nothing was run; --cpu runs the same steps")
        return
    engine = engine or ("transformers" if cpu else "vllm")
    with tempfile.TemporaryDirectory(prefix="mas-gym-gpu-") as folder:
        report = run("cpu" if cpu else "cuda", engine, Path(folder))
    report.show()
    if cpu:
        typer.echo("on a CPU: no varlen attention, no nccl, no sleep that frees memory, no peaks")
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    app()
