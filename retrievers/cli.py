"""`mas-retrieve`: indexes of corpora, from the shell. Each command's work is done elsewhere."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from retrievers.base import Passage, RetrieverError, counted, well_formed
from retrievers.shell.console import Commands, command_line, epilog, key_values
from retrievers.shell.option_help import IndexCommand, SearchCommand, ServeCommand
from retrievers.shell.progress import say, stages

SHOWN = 300  # characters of a passage's text


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
        metavar="WHERE",
        help="Folder of an index (also Anserini's), a corpus, a server's URL, or module:attribute.",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="Of the backend (see below); repeatable."
    ),
]


@app.command(
    cls=IndexCommand,
    epilog=epilog(
        [
            "mas-retrieve index corpus.jsonl index",
            "mas-retrieve index wiki-18.jsonl.gz index -o k1=1.2 -o b=0.75",
            "mas-retrieve index part-*.parquet index --backend dense \\",
            "    --option encoder=intfloat/e5-base-v2",
        ]
    ),
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
    from retrievers.indexes.build_and_load import build
    from retrievers.indexes.manifest import read_manifest

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
        f"{out}: {counted(made.corpus['passages'], 'passage')}, {made.backend}, "
        f"{made.bytes / 1e6:,.1f} MB, in {seconds:,.1f} s"
    )


@app.command(
    cls=SearchCommand,
    epilog=epilog(
        [
            'mas-retrieve search index "who wrote Hamlet"',
            'mas-retrieve search corpus.jsonl "vitamin D" "bone density" -k 10',
            'mas-retrieve search http://127.0.0.1:8000 "who wrote Hamlet" --json',
        ]
    ),
)
def search(
    where: Where,
    query: Annotated[
        list[str],
        typer.Argument(metavar="QUERY...", help="Plain words; quote each."),
    ],
    k: Annotated[int, typer.Option("-k", help="How many passages at most, for each.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each query.")] = False,
    option: Options = None,
) -> None:
    """Print the passages that fit each QUERY best."""
    from retrievers.indexes.build_and_load import open_or_index

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
        text = " ".join(passage.text.split())
        typer.echo(f"   {text if len(text) <= SHOWN else f'{text[:SHOWN].rstrip()}…'}")


@app.command(
    epilog=epilog(
        [
            "mas-retrieve info index --check",
            "mas-retrieve info http://127.0.0.1:8000",
        ]
    )
)
def info(
    where: Annotated[
        str,
        typer.Argument(
            metavar="WHERE", help="Folder of an index (also Anserini's), or a server's URL."
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Read all files and compare them with their hashes.")
    ] = False,
) -> None:
    """Print what an index is and how it was made, or what a server tells, as JSON."""
    from retrievers.shell.info import info as facts_of

    with stages(transient=True) as told:
        facts = facts_of(where, check=check, progress=told)
    if check and "files" in facts:
        typer.echo(f"{where}: all {facts['files']} files are what they were", err=True)
    typer.echo(json.dumps(facts, indent=1, ensure_ascii=False))


@app.command(
    cls=ServeCommand,
    epilog=epilog(
        [
            "mas-retrieve serve index",
            "mas-retrieve serve index --host 0.0.0.0 --port 8080 --limit topk=100",
            'curl -d \'{"queries": ["who wrote Hamlet"]}\' localhost:8000/retrieve',
        ]
    ),
)
def serve(
    where: Where,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="See below; repeatable."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A line on stderr for each request.")
    ] = False,
    option: Options = None,
) -> None:
    """Answer POST /retrieve, as Search-R1's and DrMAS's servers do."""
    from retrievers.indexes.build_and_load import is_index, load
    from retrievers.indexes.options import check_options
    from retrievers.server import Limits
    from retrievers.server import serve as run

    options, limits = key_values(option or (), "--option"), key_values(limit or (), "--limit")
    check_options("--limit", Limits, limits)
    if not (is_index(where) or Path(where).exists()):
        load(where)  # which says what to do
    run(where, host=host, port=port, limits=Limits(**limits), access_log=access_log, **options)


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
    where: Where,
    queries: Annotated[Path | None, typer.Option(help="TSV (id, text) or JSONL.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgements (TREC): nDCG, recall.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many passages for each query.")] = 10,
    threads: Annotated[
        list[int] | None, typer.Option(help="Clients at a time, 1 by default; repeatable.")
    ] = None,
) -> None:
    """Measure queries/s, CPU time, latency and memory; with judgements, quality too."""
    from retrievers.measure.bench import bench as measure
    from retrievers.measure.bench import show

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
    from retrievers.fetch import wiki18 as fetching

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
