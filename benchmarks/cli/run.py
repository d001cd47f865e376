"""`mas-bench run`: play suites."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.accounting import Prices as PriceList
from benchmarks.accounting import read_prices
from benchmarks.cli.copies import named_copies
from benchmarks.cli.notes import load_with_notes, note
from benchmarks.cli.playing import play_with_progress
from benchmarks.cli.scores import print_scores
from benchmarks.cli.usage import print_unheard, print_usage
from benchmarks.environment import Flags, as_trained, environment
from benchmarks.policies import Made, Source, Team, team
from benchmarks.prompt_copies import copy_prompts
from benchmarks.run_folder import Settings, open_run, read_run, write_json
from benchmarks.samples import finished
from benchmarks.servers import check_servers, passages_digest
from benchmarks.suites import data_file, fingerprint, suite
from benchmarks.trained import origins
from mas_envs.console import epilog
from mas_envs.episodes.schema import Sampling
from mas_envs.errors import UnknownName, UserError
from mas_envs.policies.named import targets_named
from mas_envs.tasks import Task, TaskSet
from mas_envs.workflow import WorkflowEnv
from retrievers.base import RetrieverDown

MAX_TOKENS = 4096
MOST = 100_000  # samples per question

EXAMPLES = epilog([
    "mas-bench run arith --policy scripted:adder --k 4 --out runs/try",
    "mas-bench run aime24 --data suites --out runs/aime24 \\",
    "    --policy http://localhost:8000/v1#Qwen3-4B",
    "mas-bench run aime24 --data aime24=mine.jsonl --policy runs/demo --out runs/1",
    "mas-bench run math500 --data suites --out runs/math500 \\",
    "    --policy solver=models/solver,verifier=models/verifier",
    "mas-bench run nq --data suites --policy models/team --out runs/nq \\",
    "    --env-arg retriever=http://localhost:8100",
])  # fmt: skip

SuiteNames = Annotated[
    list[str],
    typer.Argument(metavar="SUITE…", help="Names of `mas-bench list`, or FILE.yaml#NAME."),
]
Out = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Folder of the run; of several suites each gets one in it."),
]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="Who plays: a run of mas-train (its own --env, --env-arg, --prompts and --max-tokens "
        "are the defaults then), a model's folder or id, http://host/v1#MODEL, scripted:adder, "
        "scripted:searcher, scripted:MODULE:FUNCTION (a Request → its text); role=… is for one "
        "role or agent. Repeatable.",
    ),
]
LocalCopy = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Local copy of the suite, folder of `mas-bench fetch`, or SUITE=FILE. Repeatable.",
    ),
]
Samples = Annotated[
    int, typer.Option("--k", "-k", metavar="N", min=1, max=MOST, help="Samples per question.")
]
Temperature = Annotated[float, typer.Option(metavar="X", min=0)]
Share = Annotated[float, typer.Option(metavar="X", min=0, max=1)]
TopK = Annotated[int, typer.Option(metavar="N", min=0, help="0: off.")]
MaxTokens = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help=f"Per turn; {MAX_TOKENS} if no run says otherwise."),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0)]
Concurrency = Annotated[int, typer.Option(metavar="N", min=1, help="Episodes in flight.")]
Env = Annotated[
    str | None,
    typer.Option(metavar="ENV", help="Environment id or module:Class; default: the suite's."),
]
EnvArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="KEY=VALUE",
        help="Argument of the environment, like max_rounds=3. Search suites but tinyworld need "
        "retriever=INDEX or a server's URL. Repeatable.",
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option(metavar="SET", help="Prompts: a set's name, FILE.toml or role=FILE.toml,…"),
]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first N questions.")]
ServedModel = Annotated[
    str | None, typer.Option(metavar="NAME", help="Model of a server, if its URL has none.")
]
KeyVariable = Annotated[
    str | None,
    typer.Option(metavar="VARIABLE", help="Environment variable with the server's API key."),
]
TimeoutS = Annotated[
    float,
    typer.Option(metavar="S", min=0.001, help="Seconds for one answer of a server, with retries."),
]
PriceTable = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="Adds up costs by a YAML file: `MODEL: {prompt: USD, response: USD}`, per million "
        "tokens.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of local models; float32 on CPU, else bfloat16."),
]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of local models; cuda if there is.")
]


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
    timeout_s: TimeoutS = 600.0,
    dtype: Dtype = None,
    device: Device = None,
    prices: PriceTable = None,
) -> None:
    """Play SUITEs and print avg@k and pass@k. Interrupted? The same command continues."""
    copies = _copies(names, data or ())
    folders = _folders(names, out)
    priced = None if prices is None else read_prices(prices)
    loaded = [load_with_notes(name, copies[name]) for name in names]
    flags = _as_trained(Flags(env, env_arg or (), prompts, max_tokens), policy)
    sampling = Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_tokens=flags.max_tokens or MAX_TOKENS,
    )
    made: Made = {}
    source = Source(model, api_key_env, dtype, device, timeout_s)
    jobs = []
    for name, tasks, folder in zip(names, loaded, folders, strict=True):
        played = environment(name, tasks, flags)
        chosen = team(policy, played, source, made)
        asked = list(tasks[:limit] if limit else tasks)
        settings = Settings(
            suite=_identity(name, tasks, copies[name]),
            questions=len(asked),
            env=played.spec.to_dict(),
            prompts=played.prompts_id,
            policies=chosen.records,
            sampling=sampling,
            k=k,
            seed=seed,
            passages=_passages(folder, played, len(asked) * k),
        )
        jobs.append(_Job(folder, settings, played, chosen, asked))
    check_servers(policy for job in jobs if job.missing() for policy in job.team.policies.values())
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

    def missing(self) -> bool:
        """Whether a sample has still to be played."""
        return len(finished(self.folder / "episodes")) < self.settings.questions * self.settings.k


def _passages(folder: Path, env: WorkflowEnv, wanted: int) -> str | None:
    """The digest of what is searched. A whole run may outlive the servers: then as recorded."""
    try:
        return passages_digest(env)
    except RetrieverDown:
        if not (folder / "run.json").exists() or len(finished(folder / "episodes")) < wanted:
            raise
        return read_run(folder).settings.passages


def _copies(names: list[str], data: Sequence[str]) -> dict[str, Path | None]:
    """The local copy of each suite, or the folder that holds it."""
    files, paths = named_copies(data)
    if len(paths) > 1:
        raise UserError(f"--data {paths[0]}, --data {paths[1]}: say of which suite each is: "
                        "SUITE=FILE")  # fmt: skip
    if len(names) > 1 and paths and not paths[0].is_dir():
        raise UserError(f"--data {paths[0]}: is one file for {len(names)} suites; give the folder "
                        "that mas-bench fetch wrote, or SUITE=FILE for each")  # fmt: skip
    known = [suite(name).name for name in names]
    for name in files:
        if name not in known:
            raise UnknownName("suite", name, known, where="--data")
    whole = paths[0] if paths else None
    return {name: files.get(own, whole) for name, own in zip(names, known, strict=True)}


def _folders(names: list[str], out: Path) -> list[Path]:
    """Where each suite goes. Raises `UserError` for what several suites cannot share."""
    if len(names) == 1:
        return [out]
    folders = [suite(name).name for name in names]
    if twice := [name for name, count in Counter(folders).items() if count > 1]:
        raise UserError(f"suite {twice[0]!r} is named twice; play it into another --out")
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
    print_unheard(summary["usage"], job.settings.sampling.max_tokens)
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
