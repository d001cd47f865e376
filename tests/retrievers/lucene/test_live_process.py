"""Lucene's process: killed, stuck, forked, orphaned; no search hangs and none is lost."""

import contextlib
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import retrievers
from retrievers import RetrieverDown
from retrievers.lucene import open_index
from retrievers.lucene import process as lucene_process
from tests.retrievers.lucene.cases import corpus, ids


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ends(pid, seconds=10):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def test_a_killed_process_is_started_again_and_no_search_is_lost(fox):
    before = fox.search(["fox"], 1)
    for _ in range(2):
        first = fox._worker.pid
        os.kill(first, signal.SIGKILL)
        assert fox.search(["fox"], 1) == before
        assert fox._worker.pid != first


def test_killed_during_searches_from_threads(fox):
    before, stop = fox.search(["fox"], 1), time.monotonic() + 4

    def searches(_):
        while time.monotonic() < stop:
            assert fox.search(["fox"], 1) == before

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(searches, i) for i in range(3)]
        for _ in range(2):
            time.sleep(0.7)
            if fox._worker is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(fox._worker.pid, signal.SIGKILL)
        for done in running:
            done.result()


def test_a_process_that_dies_twice_is_down(fox, monkeypatch):
    def dies(self, *request):
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        raise lucene_process.WorkerDied(self._last_words())

    with monkeypatch.context() as patch:
        patch.setattr(lucene_process.Worker, "send", dies)
        with pytest.raises(RetrieverDown, match=r"ended twice.*exit code -9"):
            fox.search(["fox"], 1)
    assert ids(fox.search(["fox"], 1)[0]) == ["0"]


def test_an_interrupted_search_leaves_no_answer_for_the_next(fox):
    before = fox.search(["dog"], 1)

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            while True:
                fox.search(["fox"] * 500, 3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    assert fox.search(["dog"], 1) == before


def test_a_process_that_does_not_answer_is_ended(lucene):
    retriever = lucene("red fox")
    retriever._timeout = 0.3  # after it opened: starting takes longer
    stuck = retriever._worker.pid
    os.kill(stuck, signal.SIGSTOP)
    with pytest.raises(RetrieverDown, match=r"no answer in 0\.3 s|at start"):
        for _ in range(2):
            retriever.search(["fox"], 1)
            os.kill(retriever._worker.pid, signal.SIGSTOP)
    assert ends(stuck)
    retriever._timeout = 60.0
    assert ids(retriever.search(["fox"], 1)[0]) == ["0"]


def _in_child(retriever, answers):
    answers.put((retriever.search(["fox"], 1), retriever._worker.pid))
    retriever.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_searched_in_another_process(fox, method):
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(fox, answers))
    child.start()
    found, pid = answers.get(timeout=60)
    child.join(30)
    assert child.exitcode == 0
    assert found == fox.search(["fox"], 1)
    assert pid != fox._worker.pid and ends(pid)


def test_forked_while_another_thread_searches(fox):
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(fox.search, ["fox"] * 20_000, 3)
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            os._exit(0 if ids(fox.search(["fox"], 1)[0]) == ["0"] else 1)
        assert len(busy.result()) == 20_000
    assert os.waitpid(child, 0)[1] == 0


PARENT = """
import json, os, sys, time
from pathlib import Path
from retrievers.lucene import open_index
from retrievers.passages.store import open_passages
passages, folder, settings, fork = json.loads(sys.argv[1])
retriever = open_index(open_passages(Path(passages)), Path(folder), settings)
child = os.fork() if fork else 0
if fork and child == 0:
    time.sleep(30)  # holds the parent's end of the socket
    os._exit(0)
print(retriever._worker.pid, child, flush=True)
time.sleep(30)
"""


@pytest.mark.parametrize("fork", [False, True])
def test_the_process_ends_with_its_killed_parent(built, fork):
    passages, folder, settings = built(corpus("red fox"))
    arguments = json.dumps([str(passages.folder), str(folder), settings, fork])
    root = os.path.dirname(os.path.dirname(retrievers.__file__))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, arguments], stdout=subprocess.PIPE, cwd=root, text=True
    ) as parent:
        pid, child = map(int, parent.stdout.readline().split())
        assert alive(pid)
        parent.kill()
        assert ends(pid)
        if fork:
            os.kill(child, signal.SIGKILL)


def test_the_process_ends_with_its_retriever(built):
    retriever = open_index(*built(corpus("red fox")))
    pid = retriever._worker.pid
    assert alive(pid)
    del retriever
    gc.collect()
    assert not alive(pid)


def test_ctrl_c_in_the_terminal_leaves_the_process(fox):
    os.kill(fox._worker.pid, signal.SIGINT)
    pid = fox._worker.pid
    assert ids(fox.search(["fox"], 1)[0]) == ["0"] and fox._worker.pid == pid


def test_cold_start_is_small(fox):
    fox.search(["fox"], 1)
    status = Path(f"/proc/{fox._worker.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < 250_000  # kB
