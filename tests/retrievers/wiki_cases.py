"""A small wiki-18 on an imitated hub, and a shell that does what `mas-retrieve fetch` prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

from retrievers import HTTPRetriever, Passage
from tests.retrievers.corpus_cases import WIKI_DUMP, contents, gz, tar

WIKI = [
    Passage("0", "Hamlet", "The Tragedy of Hamlet is a play by William Shakespeare."),
    Passage("1", "Moby-Dick", "A novel by Herman Melville about a whale."),
    Passage("2", "Whale", "Whales are large animals of the sea.\nThey breathe air."),
]
CORPUS, BM25, E5 = (f"PeterJinGo/wiki-18-{part}" for part in ("corpus", "bm25-index", "e5-index"))


def files(lucene=None, vectors=b""):
    """What the hub has: the corpus as it is there, a Lucene index, a FAISS index in two parts."""
    return {
        CORPUS: {"wiki-18.jsonl.gz": gz(tar([(WIKI_DUMP, contents(WIKI))]))},
        BM25: {f"bm25/{path.name}": path.read_bytes() for path in lucene.iterdir()}
        if lucene
        else {},
        E5: {"part_aa": vectors[:200], "part_ab": vectors[200:]},
    }


def environment():
    scripts = Path(sys.executable).parent
    return os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C"}


def shell(line, folder):
    """Run a line; it must succeed. Returns (stdout, stderr)."""
    done = subprocess.run(
        line, shell=True, cwd=folder, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout, done.stderr


def served(line, folder, query, k):
    """What the server that `line` starts (at a free port) answers."""
    server = subprocess.Popen(
        ["sh", "-c", f"exec {line} --port 0"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        said, url = [], None
        for text in server.stderr:
            said.append(text)
            url = url or re.search(r"(http://\S+?)/health", text)
            if "ready: POST" in text:
                break
        assert url, said
        with HTTPRetriever(url[1]) as client:
            return client.search([query], k)[0]
    finally:
        server.terminate()
        server.communicate(timeout=20)


def follow(hub, folder, *options, more=""):
    """Fetch by the command and do what it prints; {index: passages served for "whale"}.

    `more` is put at the end of the commands that index.
    """
    fetch = " ".join(["mas-retrieve fetch wiki-18 --out 'a wiki'", *options])
    printed, _ = shell(f"{fetch} --endpoint {hub.url}", folder)
    found = {}
    for line in printed.splitlines():
        if line.startswith("mas-retrieve serve"):
            index = line.rpartition("/")[2]
            found[index] = served(line, folder, "whale", 2)
        else:
            if line.startswith("mas-retrieve fetch"):
                line += f" --endpoint {hub.url}"
            shell(line + more * line.startswith("mas-retrieve index"), folder)
    return found
