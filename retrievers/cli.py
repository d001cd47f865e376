"""`mas-retrieve`: search a corpus from the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from retrievers.base import RetrieverError, well_formed


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """A user's mistake is one line on stderr and exit code 2."""
        try:
            return super().invoke(ctx)
        except RetrieverError as error:
            typer.echo(f"mas-retrieve: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Group,
    help="Find passages in a corpus.",
    epilog="Examples:\n"
    '  mas-retrieve search corpus.jsonl "who wrote Hamlet"\n'
    '  mas-retrieve search scifact/ "vitamin D and bone" -k 10',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _group() -> None:
    """Find passages in a corpus."""


@app.command()
def search(
    corpus: Annotated[
        Path, typer.Argument(help='JSONL of {"id","contents"} or BEIR rows, or a BEIR folder.')
    ],
    query: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    k: Annotated[int, typer.Option("-k", help="How many passages at most.")] = 3,
) -> None:
    """Print the passages that fit QUERY best, by BM25."""
    from rich.console import Console
    from rich.progress import track

    from retrievers.bm25 import BM25
    from retrievers.corpus import load_corpus

    console = Console(stderr=True)
    rows = track(
        load_corpus(corpus),
        "indexing",
        total=None,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    [passages] = BM25(rows).search([query], k)
    if not passages:
        typer.echo(f"no passage matches {well_formed(query)!r}", err=True)
    for rank, passage in enumerate(passages, 1):
        typer.echo(f"{rank}. {passage.score:.4f}  [{passage.id}]  {passage.title}".rstrip())
        typer.echo(f"   {' '.join(passage.text.split())[:300]}")


if __name__ == "__main__":
    app()
