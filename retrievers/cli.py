"""`mas-retrieve`: indexes of corpora, from the shell. Each command's work is done elsewhere."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from retrievers.base import Passage, RetrieverError, well_formed
from retrievers.console import Commands, command_line, epilog, key_values
from retrievers.progress import say


class _Commands(Commands):
    def invoke(self, ctx: Any) -> Any:
        """A warning is one line, too."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(
                f"mas-retrieve: warning: {message}"
            )
            return super().invoke(ctx)


app = command_line(
    "Find passages in a corpus: index it, search it, serve it.",
    [
        "mas-retrieve index corpus.jsonl index",
        'mas-retrieve search index "who wrote Hamlet"',
        "mas-retrieve serve index --port 8000",
    ],
    _Commands,
)

Where = Annotated[
    str,
    typer.Argument(
        metavar="WHERE", help="Folder of an index (also Anserini's), a corpus, or a server's URL."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="Of the backend; repeatable."),
]


@app.command(
    epilog=epilog(
        [
            "mas-retrieve index corpus.jsonl index",
            "mas-retrieve index wiki-18.jsonl.gz index -o k1=1.2 -o b=0.75",
            "mas-retrieve index part-*.parquet index --backend dense \\",
            "    --option encoder=intfloat/e5-base-v2",
        ]
    )
)
def index(
    corpus: Annotated[
        list[Path],
        typer.Argument(
            metavar="CORPUS...", help="JSONL, TSV or Parquet files, or folders of them."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to be made.")],
    backend: Annotated[str, typer.Option(help="bm25, dense, lucene or hybrid.")] = "bm25",
    option: Options = None,
    duplicates: Annotated[
        Literal["refuse", "keep_last"], typer.Option(help="What to do with a repeated id.")
    ] = "refuse",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an index that is at OUT.")
    ] = False,
) -> None:
    """Index the passages of CORPUS in the new folder OUT."""
    from retrievers.indexes import build
    from retrievers.manifest import read_manifest
    from retrievers.progress import stages

    started = time.monotonic()
    with stages() as told:
        build(
            corpus,
            out,
            backend,
            duplicates=duplicates,
            overwrite=overwrite,
            progress=told,
            **key_values(option or (), "--option"),
        )
    made = read_manifest(out)
    seconds = time.monotonic() - started
    typer.echo(
        f"{out}: {made.corpus['passages']:,} passages, {made.backend}, "
        f"{made.bytes / 1e6:,.1f} MB, in {seconds:,.1f} s"
    )


@app.command(
    epilog=epilog(
        [
            'mas-retrieve search index "who wrote Hamlet"',
            'mas-retrieve search corpus.jsonl "vitamin D" "bone density" -k 10',
            'mas-retrieve search http://127.0.0.1:8000 "who wrote Hamlet" --json',
        ]
    )
)
def search(
    where: Where,
    query: Annotated[
        list[str], typer.Argument(metavar="QUERY...", help="What to look for, in plain words.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many passages at most, for each.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each query.")] = False,
    option: Options = None,
) -> None:
    """Print the passages that fit each QUERY best."""
    from retrievers.indexes import open_or_index
    from retrievers.progress import stages

    with stages(transient=True) as told:
        retriever = open_or_index(where, progress=told, **key_values(option or (), "--option"))
    for one, passages in zip(query, retriever.search(query, k), strict=True):
        if as_json:
            found = [passage._asdict() for passage in passages]
            row = {"query": well_formed(one), "passages": found}
            typer.echo(json.dumps(row))
        else:
            _show(one, passages, title=len(query) > 1)


def _show(query: str, passages: list[Passage], title: bool) -> None:
    if title:
        typer.echo(f"== {well_formed(query)}")
    if not passages:
        typer.echo(f"no passage matches {well_formed(query)!r}", err=True)
    for rank, passage in enumerate(passages, 1):
        typer.echo(f"{rank}. {passage.score:.4f}  [{passage.id}]  {passage.title}".rstrip())
        typer.echo(f"   {' '.join(passage.text.split())[:300]}")


@app.command(epilog=epilog(["mas-retrieve info index", "mas-retrieve info index --check"]))
def info(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of an index.")],
    check: Annotated[
        bool, typer.Option("--check", help="Read all files and compare them with their hashes.")
    ] = False,
) -> None:
    """Print what an index is and how it was made, as JSON."""
    from dataclasses import asdict

    from retrievers.manifest import check_contents, check_sizes, read_manifest
    from retrievers.progress import stages

    made = read_manifest(out)
    check_sizes(out, made)
    if check:
        with stages(transient=True) as told:
            check_contents(out, made, told)
        typer.echo(f"{out}: all {len(made.files)} files are what they were", err=True)
    shown = asdict(made) | {"files": len(made.files), "bytes": made.bytes}
    typer.echo(json.dumps(shown, indent=1, ensure_ascii=False))


@app.command(
    epilog=epilog(
        [
            "mas-retrieve serve index",
            "mas-retrieve serve index --host 0.0.0.0 --port 8080 --limit topk=100",
            'curl -d \'{"queries": ["who wrote Hamlet"]}\' localhost:8000/retrieve',
        ]
    )
)
def serve(
    where: Where,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="topk, queries, waiting…; repeatable."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A line on stderr for each request.")
    ] = False,
    option: Options = None,
) -> None:
    """Answer POST /retrieve, as Search-R1's and DrMAS's servers do."""
    from retrievers.indexes import is_index, open_or_index
    from retrievers.options import check_options
    from retrievers.server import Limits
    from retrievers.server import serve as run

    options, limits = key_values(option or (), "--option"), key_values(limit or (), "--limit")
    check_options("--limit", Limits, limits)
    served = where if is_index(where) else open_or_index(where, **options)
    taken = options if isinstance(served, str) else {}
    run(served, host=host, port=port, limits=Limits(**limits), access_log=access_log, **taken)


@app.command(
    epilog=epilog(
        [
            "mas-retrieve bench index",
            "mas-retrieve bench index --queries queries.tsv --qrels qrels.txt",
            "mas-retrieve bench http://127.0.0.1:8000 --queries q.jsonl --threads 8",
        ]
    )
)
def bench(
    where: Annotated[
        str, typer.Argument(metavar="WHERE", help="Folder of an index, or a server's URL.")
    ],
    queries: Annotated[Path | None, typer.Option(help="TSV (id, text) or JSONL.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgements (TREC): nDCG, recall.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many passages for each query.")] = 10,
    threads: Annotated[
        list[int] | None, typer.Option(help="Clients at a time, 1 by default; repeatable.")
    ] = None,
) -> None:
    """Measure queries/s, CPU time, latency and memory; with judgements, quality too."""
    from retrievers.bench import bench as measure
    from retrievers.bench import show

    show(measure(where, queries=queries, qrels=qrels, k=k, threads=threads or (1,)))


@app.command(
    epilog=epilog(
        [
            "mas-retrieve fetch --list",
            "mas-retrieve fetch wiki-18 --out wiki-18 --what corpus",
        ]
    )
)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="wiki-18")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for it; NAME by default.")] = None,
    what: Annotated[
        list[str] | None, typer.Option(help="Part of it: corpus, bm25, e5; repeatable.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="A mirror of huggingface.co; HF_ENDPOINT by default.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say what there is.")] = False,
) -> None:
    """Fetch a corpus and indexes that the field uses; goes on where it was interrupted."""
    from retrievers import fetch as fetching
    from retrievers.progress import stages

    if list_:
        typer.echo("\n".join(fetching.describe()))
        return
    if not name:
        raise RetrieverError(f"give a NAME: {', '.join(fetching.RESOURCES)} (see --list)")
    folder = out or Path(name)
    with stages() as told:
        fetching.fetch(name, folder, what=what, endpoint=endpoint, progress=told)
    for step in fetching.next_steps(name, folder, what):
        typer.echo(step)


if __name__ == "__main__":
    app(prog_name="mas-retrieve")
