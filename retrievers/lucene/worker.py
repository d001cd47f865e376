"""The process that holds the JVM.

Started by `retrievers.lucene.process` as a fresh interpreter, because a JVM does not survive a fork
and cannot be started twice in a process. Answers one request at a time on an inherited socket:
(command, arguments) in, ("ok", value) or ("error", one line) out. The commands are the methods of
`retrievers.lucene.jvm.Java`.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from retrievers.lucene.jvm import Java

_TOLD = {  # what an exception of Lucene's means to the user; the rest is given as it is
    "IndexNotFoundException": "not a Lucene index",
    "IndexFormatTooOldException": "an index of an older Lucene; rebuild it",
    "IndexFormatTooNewException": "an index of a newer Lucene; install a newer pyserini",
    "OutOfMemoryError": 'the Java heap is full; give more, such as heap="4g"',
    "CorruptIndexException": "a damaged index; copy or build it again",
    "NoSuchFileException": "a damaged index, a file is missing; copy or build it again",
    "FileNotFoundException": "a damaged index, a file is missing; copy or build it again",
    "EOFException": "a damaged index, a file is cut short; copy or build it again",
}


def main(socket: int, parent: int, jar: str, options: list[str]) -> None:
    """Serve requests on the file descriptor `socket` until `parent` ends or closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    connection = Connection(socket)
    requests: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, parent, requests), daemon=True).start()
    try:
        java = Java(jar, options)
        connection.send(("ok", java.version))
    except Exception as error:
        connection.send(("error", _one_line(error)))
        return
    while True:
        command, arguments = requests.get()
        try:
            answer = "ok", getattr(java, command)(*arguments)
        except Exception as error:
            answer = "error", _one_line(error)
        connection.send(answer)


def _receive(connection: Connection, parent: int, requests: queue.SimpleQueue[Any]) -> None:
    """Queue what arrives; end the process with its parent, even in the middle of a Java call."""
    try:
        while True:
            while not connection.poll(1.0):
                # The socket alone does not tell: a fork of the parent may hold its other end.
                if os.getppid() != parent:
                    os._exit(0)
            requests.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _one_line(error: Exception) -> str:
    """What went wrong in Lucene, for a user."""
    name = (getattr(error, "classname", None) or type(error).__name__).split(".")[-1]
    text = getattr(error, "innermessage", None) or str(error)
    text = " ".join(text.split("\n\t")[0].split())
    if "An SPI class of type" in text or "Could not load codec" in text:
        name = "IndexFormatTooNewException"
    return f"{_TOLD[name]} ({name}: {text})" if name in _TOLD else f"{name}: {text}"
