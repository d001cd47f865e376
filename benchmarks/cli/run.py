"""`mas-bench run`: play suites."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.accounting import Prices as PriceList
from benchmarks.accounting import read_prices
from benchmarks.cli.notes import load_with_notes, note
from benchmarks.cli.playing import play_with_progress
from benchmarks.cli.scores import print_scores
from benchmarks.cli.usage import print_usage
from benchmarks.environment import Flags, as_trained, environment
from benchmarks.policies import Made, Source, Team, team
from benchmarks.prompt_copies import copy_prompts
from benchmarks.run_folder import Settings, open_run, write_json
from benchmarks.suites import data_file, fingerprint, suite
from benchmarks.trained import origins
from mas_envs.episodes.schema import Sampling
from mas_envs.errors import UserError
from mas_envs.policies.named import targets_named
from mas_envs.tasks import Task, TaskSet
from mas_envs.workflow import WorkflowEnv

MAX_TOKENS = 4096

SuiteNames = Annotated[
    list[str],
    typer.Argument(metavar="SUITE…", help="Names of `mas-bench list`, or FILE.yaml#NAME."),
]
Out = Annotated[
    Path,
    typer.Option(
        help="Folder of the run, of several suites with a folder for each in it; the same command "
        "continues it."
    ),
]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        help="Run folder of mas-train, model folder or id, http://host/v1#MODEL, scripted:adder or "
        "scripted:package.module:function; role=… or agent=… for one only. Repeatable. A trained "
        "team is measured as it was trained: what its run says is the default of --env, --env-arg, "
        "--prompts and --max-tokens.",
    ),
]
LocalCopy = Annotated[
    Path | None, typer.Option(help="Local copy of the suite, or the folder of `mas-bench fetch`.")
]
Samples = Annotated[int, typer.Option("--k", "-k", min=1, help="Samples per question.")]
Temperature = Annotated[float, typer.Option(min=0)]
Share = Annotated[float, typer.Option(min=0, max=1)]
TopK = Annotated[int, typer.Option(min=0, help="0: off.")]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help=f"Per turn; {MAX_TOKENS} if no run says otherwise.")
]
Seed = Annotated[int, typer.Option(min=0)]
Concurrency = Annotated[int, typer.Option(min=1, help="Episodes in flight.")]
Env = Annotated[
    str | None, typer.Option(help="Environment id or module:Class; default: the suite's.")
]
EnvArguments = Annotated[
    list[str] | None,
    typer.Option("--env-arg", help="Environment argument, like max_rounds=3. Repeatable."),
]
Prompts = Annotated[
    str | None, typer.Option(help="Prompt set: a name, FILE.toml or role=FILE.toml,….")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N questions.")]
ServedModel = Annotated[str | None, typer.Option(help="Model of a server, if its URL has none.")]
KeyVariable = Annotated[
    str | None, typer.Option(help="Environment variable that holds the server's API key.")
]
PriceTable = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE.yaml",
        help="Adds up costs: `MODEL: {prompt: USD, response: USD}`, per million tokens.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="Of local models; float32 on CPU, else bfloat16.")]
Device = Annotated[str | None, typer.Option(help="Of local models; cuda if there is.")]


def run(
    names: SuiteNames,
    out: Out,
    policy: Policies,
    data: LocalCopy = None,
    k: Samples = 16,
    temperature: Temperature = 0.6,
    top_p: Share = 0.95,
    top_k: TopK = 0,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    concurrency: Concurrency = 64,
    env: Env = None,
    env_arg: EnvArguments = None,
    prompts: Prompts = None,
    limit: Limit = None,
    model: ServedModel = None,
    api_key_env: KeyVariable = None,
    dtype: Dtype = None,
    device: Device = None,
    prices: PriceTable = None,
) -> None:
    """Play SUITEs and print avg@k and pass@k. Interrupted? The same command continues."""
    folders = _folders(names, out, data)
    priced = None if prices is None else read_prices(prices)
    loaded = [load_with_notes(name, data) for name in names]
    flags = _as_trained(Flags(env, env_arg or (), prompts, max_tokens), policy)
    sampling = Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_tokens=flags.max_tokens or MAX_TOKENS,
    )
    made: Made = {}
    source = Source(model, api_key_env, dtype, device)
    jobs = []
    for name, tasks, folder in zip(names, loaded, folders, strict=True):
        played = environment(name, tasks, flags)
        chosen = team(policy, played, source, made)
        asked = list(tasks[:limit] if limit else tasks)
        settings = Settings(
            suite=_identity(name, tasks, data),
            questions=len(asked),
            env=played.spec.to_dict(),
            prompts=played.prompts_id,
            policies=chosen.records,
            sampling=sampling,
            k=k,
            seed=seed,
        )
        jobs.append(_Job(folder, settings, played, chosen, asked))
    whole = [_play(job, flags.prompts, concurrency, priced) for job in jobs]
    if not all(whole):
        raise typer.Exit(1)


class _Job(NamedTuple):
    """One suite to play."""

    folder: Path
    settings: Settings
    env: WorkflowEnv
    team: Team
    tasks: list[Task]


def _folders(names: list[str], out: Path, data: Path | None) -> list[Path]:
    """Where each suite goes. Raises `UserError` for what several suites cannot share."""
    if len(names) == 1:
        return [out]
    folders = [suite(name).name for name in names]
    if twice := [name for name, count in Counter(folders).items() if count > 1]:
        raise UserError(f"suite {twice[0]!r} is named twice; play it into another --out")
    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: is one file for {len(names)} suites; give the folder that "
                        "mas-bench fetch wrote")  # fmt: skip
    if (out / "run.json").exists():
        raise UserError(f"--out {out}: holds the run of a single suite; give another folder")
    return [out / folder for folder in folders]


def _play(job: _Job, prompts: str | None, concurrency: int, prices: PriceList | None) -> bool:
    """Play one suite and print its scores; whether it has headline numbers."""
    with open_run(job.folder, job.settings) as stored:
        if prompts is not None:
            copy_prompts(prompts, job.folder)
        play_with_progress(stored, job.env, job.team, job.tasks, concurrency)
    summary = stored.summary(prices)
    write_json(job.folder / "summary.json", summary)
    print_scores(stored, summary)
    print_usage(summary["usage"])
    if len(summary["graders"]) > 1:
        note.print(f"note: verdicts of several graders ({', '.join(summary['graders'])}); "
                   f"mas-bench rescore {job.folder} gives those of one")  # fmt: skip
    return not summary["problem"]


def _identity(name: str, tasks: TaskSet, data: Path | None) -> dict[str, Any]:
    """What the run records of its suite: hash of the content and of the very file."""
    file = data_file(name, data)
    file_hash = None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "name": suite(name).name,
        "rows": len(tasks),
        "sha256": fingerprint(tasks),
        "file_sha256": file_hash,
    }


def _as_trained(given: Flags, policies: Iterable[str]) -> Flags:
    """The flags, completed by what the policies' training run says; a line tells what that is."""
    found = origins(targets_named(list(policies)).values())
    taken = {str(checkpoint): as_trained(one, given) for checkpoint, one in found.items()}
    if not taken:
        return given
    first = next(iter(taken.values()))
    if any(other != first for other in taken.values()):
        note.print("note: nothing is taken over from the policies' runs, since they differ: "
                   + "; ".join(f"{path}: {flags}" for path, flags in taken.items()))  # fmt: skip
        return given
    if str(first):
        note.print(f"as trained in {', '.join(taken)}: {first}")
    return given.completed(first)
