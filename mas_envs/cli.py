"""mas-envs: list, check and play environments; read stored episodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from mas_envs import testing
from mas_envs.console import command_line, key_values
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.shards import shards
from mas_envs.episodes.store import read_episodes
from mas_envs.episodes.text import conversation_text
from mas_envs.episodes.viewer import page
from mas_envs.errors import BadFile
from mas_envs.registration import all_specs, make

app = command_line(
    "Multi-agent environments for language models.",
    examples=[
        "mas-envs list",
        "mas-envs check my_module:MyEnv         # PettingZoo's tests, exact replay",
        "mas-envs play math-v0 --seed 3         # you are every agent",
        "mas-envs show runs/demo/episodes -n 3  # read stored conversations",
        "mas-envs view runs/demo/eval/after --out episodes.html",
    ],
)
Arguments = Annotated[
    list[str] | None, typer.Option("--arg", help="An argument of the environment: max_rounds=3")
]
Id = Annotated[str, typer.Argument(help="An id of `mas-envs list`, or module:Class.")]
Seed = Annotated[int, typer.Option(min=0)]


@app.command(name="list")
def list_() -> None:
    """The environments that are installed."""
    for spec in all_specs():
        typer.echo(f"{spec.id:<20} {spec.entry_point}")


@app.command()
def check(
    id: Id,
    arg: Arguments = None,
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1)] = 20,
    seed: Seed = 0,
) -> None:
    """Run PettingZoo's tests on ID, and ours: seeds, serialised spec, exact replay."""
    for line in testing.check(id, episodes, seed, **key_values(arg or (), "--arg")):
        typer.echo(line)


@app.command()
def play(id: Id, arg: Arguments = None, seed: Seed = 0) -> None:
    """Play an episode of ID yourself: you are shown what each agent sees and answer for it."""
    env = make(id, render_mode="ansi", **key_values(arg or (), "--arg"))
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, _, terminated, truncated, _ = env.last()
        if terminated or truncated:
            env.step(None)
            continue
        assert observation is not None
        for message in observation["messages"]:
            typer.secho(f"[{message['role']}] {message['content']}", dim=True)
        env.step(typer.prompt(agent, prompt_suffix="> "))
    typer.echo(env.render())


@app.command()
def show(path: Path, number: Annotated[int, typer.Option("-n", min=1)] = 10) -> None:
    """Print stored conversations (a folder, a shard or a .jsonl file)."""
    for episode in islice(_stored(path), number):
        typer.echo(conversation_text(episode) + "\n")


@app.command()
def view(path: Path, out: Path = Path("episodes.html")) -> None:
    """Write stored conversations (at most 200 of them) as one HTML page."""
    html = page(str(path), {"episodes": list(_stored(path))})
    out.write_text(html, encoding="utf-8")
    typer.echo(f"wrote {out}")


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
