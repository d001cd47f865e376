"""`mas-bench credit`: what an agent is worth, by replaying its part with another policy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.accounting import Usage
from benchmarks.cli.notes import counted, note, signed
from benchmarks.cli.usage import print_unheard, print_usage
from benchmarks.diagnostics.credit import Credit
from benchmarks.diagnostics.credit import credit as credit_of
from benchmarks.diagnostics.references import REFERENCES
from benchmarks.diagnostics.replaying import RESAMPLE, stored_environment, with_reference
from benchmarks.diagnostics.replays import stored_replays
from benchmarks.metrics import Score
from benchmarks.policies import Source, Team
from benchmarks.run_folder import Settings, Stored, open_run, read_run, write_json
from benchmarks.runner import writing
from benchmarks.servers import check_servers, passages_digest
from mas_envs.console import key_values, progress
from mas_envs.episodes.schema import Episode, Turn
from mas_envs.episodes.store import read_episodes
from mas_envs.errors import BadFile, UserError
from mas_envs.workflow import WorkflowEnv
from retrievers.http.connections import without_password

SCRIPTS = ", ".join(f"scripted:{name}" for name in REFERENCES)


def credit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    agent: Annotated[str, typer.Option(help="The agent, or the role, to replace.")],
    replace: Annotated[
        str,
        typer.Option(
            help=f"Who plays it instead: a policy as for `run`, {SCRIPTS}; or {RESAMPLE}: its own "
            "policy once more (a control, whose difference is chance)."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the replays; DIR/credit/AGENT-POLICY by default. The same command "
            "continues it."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Who plays the others, as for `run`; default: who played the run."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Replays of each stored episode.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only N questions.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes in flight.")] = 64,
    env_arg: Annotated[
        list[str] | None, typer.Option("--env-arg", help="What the run does not say: retriever=…")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="The run's prompt set, where it holds no copy.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of a server, if its URL has none.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the server's API key.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Of local models.")] = None,
    device: Annotated[str | None, typer.Option(help="Of local models.")] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all of it there too.")
    ] = None,
) -> None:
    """What the team's avg owes to one agent: its part played again by a reference policy.

    Each episode is replayed up to the agent's first decision and played on from there with the
    reference in its place, the other agents as they were. Interrupted? The same command continues.
    """
    if json is not None and not json.parent.is_dir():
        raise BadFile(json, "its folder does not exist", fix="create it, or give another file")
    stored = read_run(folder)
    env = stored_environment(stored, key_values(env_arg or [], "--env-arg"), prompts)
    source = Source(model, api_key_env, dtype, device)
    chosen, warnings = with_reference(stored, env, agent, replace, policy or (), source)
    replace = without_password(replace)
    for warning in warnings:
        note.print(f"warning: {warning}")
    was, now = stored.settings.passages, passages_digest(env)
    if was and now and was != now:
        raise UserError(f"--env-arg retriever=…: its passages (digest {now}) are not those of the "
                        f"run (digest {was}); give the same")  # fmt: skip
    check_servers(chosen.policies.values())
    settings = _settings(stored, env, chosen, agent, replace, draws, limit, seed)
    out = folder / "credit" / _name(agent, replace) if out is None else out
    with open_run(out, settings) as replayed:
        found = _play(stored, replayed, env, chosen, concurrency)
    usage, answers, unread = Usage(), 0, 0
    for episode in read_episodes(out / "episodes"):
        usage.add(episode)
        said = _of_reference(episode, agent)
        answers += len(said)
        unread += sum(turn.parse_status != "ok" for turn in said)
    result = found.to_json() | {"replace": replace, "usage": usage.summary()}
    result |= {"replacement_answers": answers, "replacement_unreadable": unread}
    for path in (out / "credit.json", *([json] if json else [])):
        write_json(path, result)
    Console().print(_table(found, replace))
    print_usage(result["usage"], "the replays' calls, of failed ones too")
    print_unheard(result["usage"], settings.sampling.max_tokens)
    if unread:
        note.print(f"note: {unread:,} of {counted(answers, 'answer')} of {replace} as {agent} "
                   "could not be read")  # fmt: skip
    for reason, count in found.left_out.items():
        note.print(f"left out: {counted(count, 'episode')} ({reason})")
    if "replay failed" in found.left_out:
        note.print("the same command plays again what failed")
    note.print(f"credit: {json or out / 'credit.json'}")


def _of_reference(episode: Episode, agent: str) -> list[Turn]:
    """What was said in a replay in the agent's place."""
    decision = int(episode.provenance.get("decision", len(episode.events)))
    mine = (turn for turn in episode.turns if agent in (turn.agent, turn.role))
    return [turn for turn in mine if turn.index >= decision]


def _settings(
    stored: Stored,
    env: WorkflowEnv,
    chosen: Team,
    agent: str,
    replace: str,
    draws: int,
    limit: int | None,
    seed: int,
) -> Settings:
    """The run's settings, with all that decides the replays."""
    run = stored.settings
    return msgspec.structs.replace(
        run,
        questions=run.questions if limit is None else min(limit, run.questions),
        env=env.spec.to_dict(),
        policies=chosen.records,
        seed=seed,
        credit={
            "agent": agent,
            "replace": replace,
            "draws": draws,
            "run": {"policies": run.policies, "seed": run.seed},
        },
    )


def _name(agent: str, replace: str) -> str:
    """`verifier-approve`: what a folder of replays is called."""
    policy = re.sub(r"[^\w.-]+", "_", replace.removeprefix("scripted:")).strip("_.")
    return f"{agent}-{policy[-60:]}"


def _play(
    stored: Stored, replayed: Stored, env: WorkflowEnv, chosen: Team, concurrency: int
) -> Credit:
    """Play the replays that are missing, with a bar. Ctrl-C ends with how to go on."""
    settings, credit = replayed.settings, replayed.settings.credit
    assert credit is not None
    agent, draws, folder = credit["agent"], credit["draws"], replayed.folder / "episodes"
    replays = stored_replays(folder)
    failed: set[tuple[str, int]] = set()
    episodes: Iterable[Episode] = stored.episodes()
    total = len(stored.done()) * draws
    if settings.questions < stored.settings.questions:
        episodes = _of_first(settings.questions, episodes)
        total = min(total, settings.questions * settings.k * draws)

    def pass_over() -> None:
        bar.total -= draws
        bar.advance(0)

    async def whole() -> Credit:
        try:
            async with writing(replayed.folder) as writer:

                def keep(episode: Episode) -> None:
                    writer.add(episode)
                    place = (episode.provenance["fork"], episode.sample)
                    done = episode.status == "done"
                    (failed.discard if done else failed.add)(place)
                    bar.advance(done, f"{len(failed)} failed" if failed else "")

                return await credit_of(
                    env, chosen.policies, episodes, agent, draws=draws, concurrency=concurrency,
                    seed=settings.seed, sampling=settings.sampling, replays=replays,
                    on_replay=keep, passed_over=pass_over,
                )  # fmt: skip
        finally:
            for one in chosen.policies.values():
                if hasattr(one, "aclose"):
                    await one.aclose()

    try:
        with progress(f"credit of {agent}", total, done=len(replays), unit="replays") as bar:
            return asyncio.run(whole())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{len(stored_replays(folder))} replays are in {replayed.folder}; "
            "the same command goes on from there"
        ) from None


def _of_first(limit: int, episodes: Iterable[Episode]) -> Iterator[Episode]:
    """All episodes of the first questions to come up."""
    seen: set[str] = set()
    for episode in episodes:
        if len(seen) < limit:
            seen.add(episode.task)
        if episode.task in seen:
            yield episode


def _table(found: Credit, replace: str) -> Table:
    title = (f"{found.agent} spoke in {found.spoke} of {counted(found.episodes, 'episode')}; "
             f"replayed × {found.draws}")  # fmt: skip
    table = Table("95 % intervals", "avg", title=title, title_justify="left")
    table.add_row("the team as it played", _score(found.team))
    table.add_row(f"with {replace} as {found.agent}", _score(found.replaced))
    gain = found.difference
    table.add_row(
        f"credit of {found.agent}, points",
        f"{signed(gain.points)} ({signed(gain.low)} to {signed(gain.high)})",
    )
    shown = "< 0.0001" if gain.p_value < 0.0001 else f"{gain.p_value:.4f}"
    table.add_row("p-value, sign-flip test", shown if gain.exact else f"{shown} (Monte Carlo)")
    return table


def _score(one: Score) -> str:
    return f"{one.value:.1f} % ({one.low:.1f} to {one.high:.1f})"
