"""The HTTP retriever in threads, event loops and forks."""

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrievers import HTTPRetriever
from tests.retrievers.server_cases import echo, echoed


def test_threads_and_gather_equal_serial(serve):
    server = serve()
    batches = [[f"{i}.{j}" for j in range(i % 3 + 1)] for i in range(80)]
    serial = [echoed(batch, 2) for batch in batches]

    async def gathered():
        try:
            return await asyncio.gather(*(retriever.asearch(batch, 2) for batch in batches))
        finally:
            await retriever.aclose()

    def run_gathered():
        return asyncio.run(gathered())

    with HTTPRetriever(server.url) as retriever, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda batch: retriever.search(batch, 2), batches)) == serial
        assert run_gathered() == serial
        loops = [threads.submit(run_gathered) for _ in range(2)]  # a loop in each thread
        assert [loop.result() for loop in loops] == [serial] * 2


def test_clients_of_loops_that_ended_are_dropped(serve):
    server = serve()
    retriever = HTTPRetriever(server.url)
    for _ in range(3):
        assert asyncio.run(retriever.asearch(["q"], 1)) == echoed(["q"], 1)
    assert len(retriever._connections._loops) == 1


def test_a_loop_that_ends_closes_its_connections(serve):
    server = serve()
    retriever = HTTPRetriever(server.url)

    async def several():
        return await asyncio.gather(*(retriever.asearch([f"{n}"], 1) for n in range(8)))

    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert len(asyncio.run(several())) == 8
        gc.collect()
    assert [str(one.message) for one in caught] == []


def test_search_inside_a_running_event_loop(serve):
    server = serve()

    async def main():
        async with HTTPRetriever(server.url) as retriever:
            return retriever.search(["a"], 1) + await retriever.asearch(["b"], 1)

    assert asyncio.run(main()) == echoed(["a", "b"], 1)


def test_connections_are_reused_and_closed(serve):
    server = serve()
    with HTTPRetriever(server.url) as retriever:
        for _ in range(5):
            retriever.search(["q"], 1)
    assert len(server.open) == 1
    assert retriever.search(["again"], 1) == echoed(["again"], 1)
    assert len(server.open) == 2
    retriever.close()
    retriever.close()


def test_closing_during_a_search_does_not_break_it(serve):
    entered = threading.Event()

    def script(number, body):
        entered.set()
        if number == 1:
            server.released.wait(20)
        return 200, echo(body), {}

    server = serve(script)
    retriever = HTTPRetriever(server.url)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(retriever.search, ["q"], 1)
        assert entered.wait(20)
        retriever.close()
        assert found.result(20) == echoed(["q"], 1)


def test_a_cancelled_search_leaves_nothing_behind(serve):
    server = serve(lambda number, body: (server.released.wait(20), b"", {}))

    async def main():
        async with HTTPRetriever(server.url) as retriever:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(retriever.asearch(["q"], 1), 0.2)
            return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


def test_a_child_of_a_fork_searches_too(serve):
    server = serve()
    code = f"""
import os
from retrievers import HTTPRetriever
retriever = HTTPRetriever({server.url!r}, timeout_s=20)
retriever.search(["parent"], 1)
child = os.fork()
found = retriever.search(["q"], 1)[0][0].id
print(found, flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout.split()) == (0, [b"q/0", b"q/0"]), done.stderr


def test_the_class_loads_without_a_client():
    code = "from retrievers import HTTPRetriever; import sys; print({*sys.modules} & {*clients})"
    code = f"clients = 'aiohttp', 'httpx'; {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.stdout.strip() == b"set()", done.stderr
