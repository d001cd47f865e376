"""mas-envs: list, check and play environments; read stored episodes."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mas_envs.console import command_line

app = command_line(
    "Multi-agent environments for language models.",
    examples=[
        "mas-envs list",
        "mas-envs check math-v0                 # PettingZoo's tests, seeds, exact replay",
        "mas-envs play math-v0 --seed 3         # you are every agent",
        "mas-envs show runs/demo/episodes -n 3  # read stored conversations",
        "mas-envs view runs/demo/eval/after --out episodes.html",
    ],
)
Arguments = Annotated[
    list[str] | None, typer.Option("--arg", help="An argument of the environment: max_rounds=3")
]


def _arguments(pairs: list[str] | None) -> dict[str, Any]:
    from mas_envs.errors import UserError

    found = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--arg {pair!r}; write it as key=value")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


@app.command(name="list")
def list_() -> None:
    """The environments that are installed."""
    from mas_envs.registration import all_specs

    for spec in all_specs():
        typer.echo(f"{spec.id:<20} {spec.entry_point}")


@app.command()
def check(id: str, arg: Arguments = None, episodes: int = 20, seed: int = 0) -> None:
    """Run PettingZoo's tests on ID, and ours: seeds, serialised spec, exact replay."""
    from mas_envs.testing import check as run_checks

    for line in run_checks(id, episodes, seed, **_arguments(arg)):
        typer.echo(f"ok  {line}")


@app.command()
def play(id: str, arg: Arguments = None, seed: int = 0) -> None:
    """Play an episode of ID yourself: you are shown what each agent sees and answer for it."""
    from mas_envs.registration import make

    env = make(id, render_mode="ansi", **_arguments(arg))
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
    from mas_envs.episodes.store import read_episodes
    from mas_envs.episodes.text import conversation_text

    for episode in islice(read_episodes(path), number):
        typer.echo(conversation_text(episode) + "\n")


@app.command()
def view(path: Path, out: Path = Path("episodes.html")) -> None:
    """Write stored conversations (at most 200 of them) as one HTML page."""
    from mas_envs.episodes.store import read_episodes
    from mas_envs.episodes.viewer import page

    html = page(str(path), {"episodes": list(read_episodes(path))})
    out.write_text(html, encoding="utf-8")
    typer.echo(f"wrote {out}")


if __name__ == "__main__":
    app()
