"""mas-envs: list, show, check and play environments; replay, read and view stored episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mas_envs import testing
from mas_envs.by_name import by_name
from mas_envs.console import command_line, key_values, progress
from mas_envs.describe import describe, headline
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.shards import shards
from mas_envs.episodes.store import read_episodes, write_episodes
from mas_envs.episodes.text import conversation_text
from mas_envs.episodes.viewer import page
from mas_envs.errors import BadFile, ReplayMismatch, UserError
from mas_envs.fork import Fork
from mas_envs.protocol import role_of
from mas_envs.registration import all_specs, make
from mas_envs.session import replay as replayed
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv

app = command_line(
    "Multi-agent environments for language models.",
    examples=[
        "mas-envs list",
        "mas-envs show search-v0                # agents, prompts, rewards, arguments",
        "mas-envs check my_module:MyEnv         # all tests, fuzz, exact replay",
        "mas-envs play math-v0 --seed 3         # you are every agent",
        "mas-envs play search-v0 --policy verifier=human,http://localhost:8000/v1",
        "mas-envs read runs/demo/episodes -n 3  # stored conversations as text",
        "mas-envs view runs/demo/eval/after --out episodes.html",
        "mas-envs replay runs/demo/episodes     # does every episode replay exactly?",
        "mas-envs replay FILE --episode 2 --at 3 --policy human --samples 2",
    ],
)
Arguments = Annotated[
    list[str] | None, typer.Option("--arg", help="An argument of the environment: max_rounds=3")
]
Id = Annotated[str, typer.Argument(help="An id of `mas-envs list`, or module:Class.")]
Seed = Annotated[int, typer.Option(min=0)]
Stored = Annotated[Path, typer.Argument(help="A folder of episodes, a shard or a .jsonl file.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="Who answers: human, random, http://host/v1#model or module:function; for one role "
        "or agent verifier=human. Roles that are not named answer at random.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Also write the episodes there (.jsonl).")]


@app.command(name="list")
def list_() -> None:
    """The environments that are installed."""
    for spec in all_specs():
        try:
            about = headline(by_name(spec.entry_point))
        except UserError as error:  # a plug-in that cannot be imported hides no other one
            about = str(error)
        typer.echo(f"{spec.id:<20} {about}")


@app.command()
def show(id: Id, arg: Arguments = None) -> None:
    """Describe ID: agents, observations, actions, rewards, arguments, prompts."""
    if Path(id).exists():
        raise UserError(f"{id} is a file or folder, no environment; mas-envs read prints episodes")
    text = describe(id, **key_values(arg or (), "--arg"))
    if not typer.get_text_stream("stdout").isatty():
        typer.echo(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


@app.command()
def check(
    id: Id,
    arg: Arguments = None,
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1)] = 20,
    seed: Seed = 0,
) -> None:
    """Run PettingZoo's tests on ID, and ours: any answer, seeds, concurrency, exact replay."""
    for line in testing.check(id, episodes, seed, **key_values(arg or (), "--arg")):
        typer.echo(line)


@app.command()
def play(
    id: Id,
    arg: Arguments = None,
    policy: Policies = None,
    seed: Seed = 0,
    task: Annotated[str | None, typer.Option(help="The id of the task.")] = None,
    number: Annotated[int, typer.Option("-n", min=1, help="Episodes to play.")] = 1,
    out: Out = None,
) -> None:
    """Play ID: you answer for every agent, or --policy says who answers for whom."""
    env = make(id, **key_values(arg or (), "--arg"))
    if task is not None:
        tasks = [env.tasks.by_id(task)] * number
    else:
        env.reset(seed=seed)
        first = env.tasks.by_id(env.episode.task)
        tasks = [first, *(env.tasks[(seed + n) % len(env.tasks)] for n in range(1, number))]
    _play(env, policy or ["human"], tasks, out, seed=seed)


@app.command()
def replay(
    path: Stored,
    arg: Arguments = None,
    episode: Annotated[int | None, typer.Option(min=0, help="One episode, counted from 0.")] = None,
    at: Annotated[int | None, typer.Option(min=0, help="Stand before this event.")] = None,
    policy: Policies = None,
    samples: Annotated[int, typer.Option(min=1, help="Continuations to play.")] = 1,
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Replay stored episodes in their environment: all of them exactly, or one up to an event.

    With --policy the episode is forked there: the rest is played anew.
    """
    overrides = key_values(arg or (), "--arg")
    if at is None:
        if policy or out is not None or samples > 1:
            raise UserError("--policy, --samples and --out play on from an event; say which: "
                            "--episode 2 --at 3 --policy random")  # fmt: skip
        _replay_all(path, episode, overrides)
        return
    chosen = _one(path, episode or 0)
    env = testing.env_of(chosen, {}, **overrides)
    if policy:
        _play(env, policy, [Fork(chosen, at)], out, samples=samples, seed=seed)
        return
    if out is not None or samples > 1:
        raise UserError("--samples and --out need to know who plays on: --policy random")
    session = replayed(env, chosen, at)
    if session.call is not None:
        typer.echo(f"event {at} calls {session.call.tool}: {session.call.args}")
    for ask in session.asks:
        typer.secho(f"event {at + session.asks.index(ask)} asks {ask.agent}", bold=True)
        for message in ask.messages:
            typer.echo(f"[{message.role}] {message.content}")
    if session.outcome is not None:
        typer.echo(conversation_text(session.episode))


@app.command()
def read(path: Stored, number: Annotated[int, typer.Option("-n", min=1)] = 10) -> None:
    """Print stored conversations as text."""
    for episode in islice(_stored(path), number):
        typer.echo(conversation_text(episode) + "\n")


@app.command()
def view(path: Stored, out: Path = Path("episodes.html")) -> None:
    """Write stored conversations (at most 200 of them) as one HTML page."""
    html = page(str(path), {"episodes": list(_stored(path))})
    out.write_text(html, encoding="utf-8")
    typer.echo(f"wrote {out}")


def _play(
    env: WorkflowEnv,
    names: list[str],
    tasks: Sequence[Task | Fork],
    out: Path | None,
    **options: Any,
) -> None:
    """Play, print each conversation as it ends, and store them, also when interrupted."""
    import asyncio

    from mas_envs.policies.named import policies_named
    from mas_envs.rollout import rollout

    roles = dict.fromkeys(map(role_of, env.possible_agents))
    policies = policies_named(names, roles, env.possible_agents)
    played: list[Episode] = []

    async def playing() -> None:
        async for episode in rollout(env, policies, tasks, **options):
            typer.echo(conversation_text(episode) + "\n")
            played.append(episode)

    try:
        asyncio.run(playing())
    finally:
        if out is not None and played:
            write_episodes(out, played)


def _replay_all(path: Path, number: int | None, overrides: dict[str, Any]) -> None:
    """Replay every stored episode, or only that one; the first that differs ends it."""
    count = 0
    made: dict[str, WorkflowEnv] = {}
    with progress("replay", total=sum(1 for _ in _stored(path))) as bar:
        for place, episode in enumerate(_stored(path)):
            if number in (None, place):
                try:
                    env = testing.env_of(episode, made, **overrides)
                    testing.check_replay(env, episode, overrides)
                except ReplayMismatch as mismatch:
                    raise ReplayMismatch(f"{path}: episode {place}: {mismatch}") from None
                count += 1
            bar.advance()
    if not count:
        raise BadFile(path, f"no episode {number}", fix="they are counted from 0")
    typer.echo(f"ok  {count} episodes replay exactly, to every decision")


def _one(path: Path, number: int) -> Episode:
    for episode in islice(_stored(path), number, None):
        return episode
    raise BadFile(path, f"no episode {number}", fix="they are counted from 0")


def _stored(path: Path) -> Iterator[Episode]:
    """The episodes at `path`. Raises `BadFile` when there are none."""
    if path.is_dir() and not shards(path) and shards(path / "episodes"):
        raise BadFile(path, "a run's folder", fix=f"its episodes are in {path / 'episodes'}")
    episodes = read_episodes(path)
    first = next(episodes, None)
    if first is None:
        raise BadFile(path, "no episodes in it")
    return chain([first], episodes)


if __name__ == "__main__":
    app()
