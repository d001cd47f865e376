"""Run the server in this process: bind, load, answer, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrievers.base import Retriever, RetrieverError
from retrievers.server.app import App
from retrievers.server.facts import describe
from retrievers.server.limits import Limits

if TYPE_CHECKING:
    import uvicorn

IDLE_S = 120  # that a connection without requests lives; an agent's turns are seconds apart
BACKLOG = 2048
FILES = 2**16  # open at a time, at most
Loaded = tuple[Retriever, dict[str, Any]]  # and its facts


def serve(
    where: str | Path | Retriever,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits = Limits(),  # noqa: B008 (it is frozen)
    stop_s: int = 10,
    access_log: bool = False,
    **options: Any,
) -> None:
    """Serve what `retrievers.load` opens, a corpus, or a retriever, until a signal comes.

    The address is bound at once; while it is loaded with `options`, requests get 503.
    Port 0 takes a free one. Where it listens and what it serves is told on stderr. SIGTERM or
    SIGINT stops it: nothing new is accepted, what has come is answered within `stop_s` seconds (a
    503 if that is too short), then `SystemExit(128 + number)` is raised. Raises RetrieverError if
    the address cannot be had, and whatever loading raises.
    """
    if not isinstance(stop_s, int) or stop_s < 1:
        raise RetrieverError(f"stop_s must be an integer >= 1, got {stop_s!r:.40}")
    app = App(limits)
    _allow_files()
    with contextlib.closing(_listen(host, port)) as listener:
        server = _uvicorn(app, stop_s, access_log)
        with (
            _signals(server) as received,
            asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner,
        ):
            runner.run(_run(server, app, listener, partial(_load, where, options)))
    if received:
        _say("stopped")
        raise SystemExit(128 + received[0])


async def _run(
    server: uvicorn.Server, app: App, listener: socket.socket, load: Callable[[], Loaded]
) -> None:
    """Answer and load at a time. Raises what `load` raises, after the answers under way."""
    loop, url = asyncio.get_running_loop(), _url(listener)
    faults: list[BaseException] = []

    def loaded(retriever: Retriever, facts: dict[str, Any]) -> None:
        app.ready(retriever, facts)
        told = ", ".join(str(facts[name]) for name in ("index", "backend") if name in facts)
        _say(f"ready: POST {url}/retrieve ({told or facts['retriever']})")

    def failed(fault: BaseException) -> None:
        faults.append(fault)
        server.should_exit = True

    def work() -> None:
        try:
            then: Callable[[], None] = partial(loaded, *load())
        except BaseException as fault:
            then = partial(failed, fault)
        with contextlib.suppress(RuntimeError):  # the loop is closed: stopped meanwhile
            loop.call_soon_threadsafe(then)

    _say(f"loading; {url}/health tells when it is ready")
    # A daemon: a signal does not wait for an index of 60 GB.
    threading.Thread(target=work, name="retrievers.load", daemon=True).start()
    await server.serve(sockets=[listener])
    app.close()
    if faults:
        raise faults[0]


def _load(where: str | Path | Retriever, options: dict[str, Any]) -> Loaded:
    from retrievers.indexes.build_and_load import open_or_index

    retriever = open_or_index(where, **options) if isinstance(where, str | Path) else where
    return retriever, describe(where, retriever, options)


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that who comes early waits instead of being refused."""
    if not isinstance(port, int) or not 0 <= port < 2**16:
        raise RetrieverError(f"port must be an integer from 0 to 65535, got {port!r:.40}")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except (OSError, UnicodeError) as error:
        raise RetrieverError(f"cannot listen on host {host!r}: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        what = f"cannot listen on {host}:{port}: {error.strerror}"
        raise RetrieverError(f"{what}; choose another port, or 0 for a free one") from None
    return listener


def _allow_files() -> None:
    """As many open files, and so connections, as the user may have: often 1,024 until asked for."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _uvicorn(app: App, stop_s: int, access_log: bool) -> uvicorn.Server:
    import uvicorn  # here: a tenth of a second

    from retrievers.server.connection import Connection

    if access_log:
        logging.getLogger("uvicorn.access").addHandler(logging.StreamHandler())
    config = uvicorn.Config(
        app,
        http=Connection,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="info" if access_log else "error",
        access_log=access_log,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=stop_s,
        server_header=False,
        date_header=False,
    )
    return uvicorn.Server(config)


@contextlib.contextmanager
def _signals(server: uvicorn.Server) -> Iterator[list[int]]:
    """Yields the numbers of the signals that stop the server, from now on.

    uvicorn raises them again when it has stopped, for the handlers that were there before: these.
    """
    received: list[int] = []

    def stop(number: int, _: Any) -> None:
        received.append(number)
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(what: str) -> None:
    sys.stderr.write(f"mas-retrieve: {what}\n")
    sys.stderr.flush()
