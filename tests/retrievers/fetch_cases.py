"""An imitated hub and what the tests of fetching do with it."""

import subprocess
import sys
import time

from retrievers.fetch.wiki18 import fetch
from tests.retrievers.test_fetch_hub import FILES

CORPUS, BM25, E5 = FILES
GZ = FILES[CORPUS]["wiki-18.jsonl.gz"]
AA, AB = FILES[E5].values()
FETCH = (
    "import sys, pathlib, retrievers.fetch.wiki18 as f\n"
    "f.fetch('wiki-18', pathlib.Path(sys.argv[1]), what=[sys.argv[2]], endpoint=sys.argv[3])"
)


def corpus(hub, out, **options):
    return fetch("wiki-18", out, what=["corpus"], endpoint=hub.url, **options)


def process(out, what, url, **options):
    command = [sys.executable, "-c", FETCH, str(out), what, url]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


def partial(out):
    found = list(out.glob("*.part"))
    assert len(found) == 1
    return found[0]


def until(condition, seconds=20):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.005)


def refused(error, *parts):
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return True


def files_in(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


WHOLE = {"wiki-18.jsonl.gz": GZ, **FILES[BM25], "e5_Flat.index": AA + AB}
