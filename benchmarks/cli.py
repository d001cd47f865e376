"""`mas-bench`: measure a policy on a benchmark suite."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import grade as grading
from benchmarks.environment import Flags, as_trained, environment
from benchmarks.grade_input import survey
from benchmarks.grade_summary import Summary, tables
from benchmarks.policies import Source, Team, team
from benchmarks.run_folder import Settings, Stored, open_run, read_run, write_json
from benchmarks.runner import play
from benchmarks.suites import SuiteWarning, fingerprint, load_suite, suites
from benchmarks.trained import origins
from mas_envs.console import command_line, progress
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.errors import UserError
from mas_envs.grading.processes.graders import VERSIONS
from mas_envs.policies.named import targets_named
from mas_envs.tasks import Task, TaskSet
from mas_envs.workflow import WorkflowEnv

app = command_line(
    "Measure a policy on a benchmark suite: k samples per question, avg@k and pass@k.",
    [
        "mas-bench run arith --policy scripted:adder --k 4 --out runs/try",
        "mas-bench run arith --policy runs/demo --out runs/as-trained",
        "mas-bench run aime24 --data aime24.jsonl --out runs/aime24 \\",
        "    --policy http://localhost:8000/v1#Qwen3-4B",
        "mas-bench run math500 --data math500.jsonl --out runs/math500 \\",
        "    --policy solver=models/solver,verifier=models/verifier",
        "mas-bench report runs/aime24",
        "mas-bench grade answers.jsonl --policy strict",
    ],
)
MAX_TOKENS = 4096
note = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A name of `mas-bench list`.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command continues it.")],
    policy: Annotated[
        list[str],
        typer.Option(
            help="Run folder of mas-train, model folder or id, http://host/v1#MODEL, "
            "scripted:adder or scripted:package.module:function; role=… or agent=… for one only. "
            "Repeatable. A trained team is measured as it was trained: what its run says is the "
            "default of --env, --env-arg, --prompts and --max-tokens."
        ),
    ],
    data: Annotated[Path | None, typer.Option(help="Local JSONL copy of the suite.")] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Samples per question.")] = 16,
    temperature: Annotated[float, typer.Option(min=0)] = 0.6,
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 0.95,
    top_k: Annotated[int, typer.Option(min=0, help="0: off.")] = 0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help=f"Per turn; {MAX_TOKENS} if no run says otherwise.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes in flight.")] = 64,
    env: Annotated[
        str | None, typer.Option(help="Environment id or module:Class; default: the suite's.")
    ] = None,
    env_arg: Annotated[
        list[str] | None, typer.Option(help="Environment argument, like max_rounds=3. Repeatable.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Prompt set: a name, FILE.toml or role=FILE.toml,….")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N questions.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of a server, if its URL has none.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the server's API key.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Of local models; float32 on CPU, else bfloat16.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Of local models; cuda if there is.")] = None,
) -> None:
    """Play SUITE and print avg@k and pass@k. Interrupted? The same command continues."""
    tasks = _load(name, data)
    flags = _as_trained(Flags(env, env_arg or (), prompts, max_tokens), policy)
    played = environment(name, tasks, flags)
    chosen = team(policy, played, Source(model, api_key_env, dtype, device))
    asked = list(tasks[:limit] if limit else tasks)
    settings = Settings(
        suite=_identity(name, tasks, data),
        questions=len(asked),
        env=played.spec.to_dict(),
        prompts=played.prompts_id,
        policies=chosen.records,
        sampling=Sampling(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            max_tokens=flags.max_tokens or MAX_TOKENS,
        ),
        k=k,
        seed=seed,
    )
    with open_run(out, settings) as stored:
        if flags.prompts is not None and Path(flags.prompts).is_file():
            shutil.copyfile(flags.prompts, out / "prompts.toml")
        _play(stored, played, chosen, asked, concurrency)
    summary = stored.summary()
    write_json(out / "summary.json", summary)
    _print(stored, summary)
    if summary["problem"]:
        raise typer.Exit(1)


@app.command("list")
def list_suites() -> None:
    """The suites, how many questions they have, and what is known of their source."""
    table = Table("suite", "title", "rows", "pinned", "licence")
    for one in suites().values():
        content = f"content {one.sha256[:10]}" if one.sha256 else "content unpinned"
        hub = "embedded" if one.tasks else f"hub {(one.hub and one.hub.revision) or 'unpinned'}"
        table.add_row(one.name, one.title, str(one.rows), f"{content}\n{hub}", one.licence)
    Console().print(table)
    note.print("Suites that are not embedded read a local copy: --data FILE.jsonl")


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")]) -> None:
    """Print a run's table again, recomputed from its stored episodes."""
    stored = read_run(folder)
    _print(stored, stored.summary())


GRADE_EXAMPLES = """Examples:

  mas-bench grade answers.jsonl

  mas-bench grade answers.jsonl --response output --gold answer

  mas-bench grade answers.jsonl --policy '{"units": "required"}'

  mas-bench grade qa.jsonl --grader qa --metric f1 --normaliser squad

  mas-bench grade cases.jsonl --expected label --out /tmp/cases.jsonl"""


@app.command(epilog=GRADE_EXAMPLES)
def grade(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="One row per response, with its gold.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the grades go; FILE.graded.jsonl by default.")
    ] = None,
    grader: Annotated[str, typer.Option(help="math or qa.")] = "math",
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|JSON",
            help="Of math: default, strict, drmas, or options over the default, like "
            '\'{"units": "required"}\'.',
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Of qa: em, f1 or sub_em.")] = None,
    normaliser: Annotated[
        str | None, typer.Option(help="Of qa: strict, squad, triviaqa or nfd.")
    ] = None,
    response: Annotated[str, typer.Option(help="Key of the response, a text.")] = "response",
    gold: Annotated[
        str, typer.Option(help="Key of the gold: a text, a number or a list of acceptable ones.")
    ] = "gold",
    expected: Annotated[
        str | None, typer.Option(help="Key of a label (true or false) to compare with.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
) -> None:
    """Grade the responses in FILE.jsonl: one row per row, with the verdict and its reason.

    Interrupted? The same command continues. Exit code 0 when every row has a verdict, 1 when some
    gold could not be decided (they are listed), 2 for a mistake in the file or an option.
    """
    chosen = {"policy": policy, "metric": metric, "normaliser": normaliser}
    options = grading.options_of(grader, {k: v for k, v in chosen.items() if v is not None})
    for path in filter(None, (file, out)):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; give a file")
    out = out or file.with_name(f"{file.name.removesuffix('.jsonl')}.graded.jsonl")
    if out.exists() and file.exists() and out.samefile(file):
        raise UserError(f"--out {out}: is the input; give another file")
    rows, digest = survey(file, response, gold, expected)
    settings = grading.Settings(
        file=str(file),
        sha256=digest,
        rows=rows,
        grader=grader,
        version=VERSIONS[grader],
        options=options,
        response=response,
        gold=gold,
    )
    with grading.open_output(out, settings, expected) as (output, summary):
        _grade(settings, output, summary, processes, expected)
    for table in tables(summary):
        Console().print(table)
    note.print(f"grades: {out}")
    if summary.undecided:
        left_out = "has no verdict and is" if summary.undecided == 1 else "have no verdict and are"
        note.print(f"{_count(summary.undecided, 'row')} {left_out} left out of the accuracy")
        raise typer.Exit(1)


def _load(name: str, data: Path | None) -> TaskSet:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuiteWarning)
        tasks = load_suite(name, data)
    for warning in caught:
        note.print(f"note: {warning.message}")
    return tasks


def _identity(name: str, tasks: TaskSet, data: Path | None) -> dict[str, Any]:
    """What the run records of its suite: hash of the content and of the very file."""
    file_hash = None if data is None else hashlib.sha256(data.read_bytes()).hexdigest()
    return {
        "name": name,
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


def _play(
    stored: Stored, env: WorkflowEnv, chosen: Team, tasks: list[Task], concurrency: int
) -> None:
    """`play` with a bar. Ctrl-C ends with what is stored and how to go on."""
    counts = {"done": 0, "failed": 0, "right": 0, "undecided": 0}  # of this session

    def show(episode: Episode) -> None:
        counts[episode.status] += 1
        if episode.grade is not None:
            counts["right"] += episode.grade.correct is True
            counts["undecided"] += episode.grade.correct is None
        decided = max(counts["done"] - counts["undecided"], 1)
        failed = f", {counts['failed']} failed" if counts["failed"] else ""
        bar.advance(1, f"{100 * counts['right'] / decided:.1f} % right{failed}")

    async def whole() -> None:
        try:
            await play(
                stored, env, chosen.policies, tasks, concurrency=concurrency, on_episode=show
            )
        finally:
            for policy in chosen.policies.values():
                if hasattr(policy, "aclose"):
                    await policy.aclose()

    title = stored.settings.suite["name"]
    try:
        with progress(title, stored.wanted, done=len(stored.done())) as bar:
            asyncio.run(whole())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{len(stored.done())} of {stored.wanted} episodes are in {stored.folder}; "
            "the same command goes on from there"
        ) from None


def _grade(
    settings: grading.Settings,
    output: IO[bytes],
    summary: Summary,
    processes: int | None,
    expected: str | None,
) -> None:
    """Grade what is not there yet, with a bar."""
    name, total = Path(settings.file).name, settings.rows
    unit = "row" if total == 1 else "rows"
    try:
        with progress(name, total, done=summary.rows, unit=unit) as bar:
            grades = grading.graded_rows(settings, summary.rows, processes, expected)
            for row, graded in grading.write_rows(output, grades):
                summary.add(row, graded)
                bar.advance(1, f"{100 * summary.right / summary.rows:.1f} % right")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{summary.rows} of {_count(settings.rows, 'row')} are in {output.name}; "
            "the same command goes on from there"
        ) from None


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _print(stored: Stored, summary: Mapping[str, Any]) -> None:
    settings = stored.settings
    targets = {role: policy["target"] for role, policy in settings.policies.items()}
    named = [f"{role}={target}" for role, target in targets.items()]
    who = named if len(set(targets.values())) > 1 else list(targets.values())[:1]
    title = f"{settings.suite['name']} · {settings.env['id']} · {', '.join(who)}"
    table = Table("metric", "value", "95 % interval", "questions", "samples each", title=title)
    for metric, score in summary.items():
        if "@" not in metric:
            continue
        if score is None:
            table.add_row(metric, "—", "—", str(settings.questions), str(settings.k))
            continue
        between = f"{score['low']:.1f} to {score['high']:.1f}"
        counts = (str(score["questions"]), str(score["samples"]))
        table.add_row(metric, f"{score['value']:.1f} %", between, *counts)
    Console().print(table)
    if settings.questions < settings.suite["rows"]:
        note.print(f"note: {settings.questions} of the suite's {settings.suite['rows']} questions")
    if summary["undecided"]:
        note.print(f"note: the grader could not decide {_count(summary['undecided'], 'episode')}; "
                   "that is neither right nor wrong")  # fmt: skip
    for reason, count in summary["failures"].items():
        note.print(f"failed, not wrong: {count} × {reason}")
    if summary["problem"]:
        note.print(f"no headline number: {summary['problem']}")
