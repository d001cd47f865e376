"""POST for many requests at a time, whatever event loops they come from."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from retrievers.base import RetrieverError
from retrievers.http.event_loops import PerEventLoop

if TYPE_CHECKING:
    import ssl

    import aiohttp

MAX_HEADER = 2**16  # bytes of one header; proxies of some clouds send more than the usual 8,190
LONGEST_REASON = 500  # characters; some errors quote what they could not read


class Reply(NamedTuple):
    """What a server answered; `content` is None if it was longer than allowed."""

    status: int
    headers: Mapping[str, str]
    content: bytes | None


class NoReply(Exception):
    """No connection, or one that broke: what happened, in one line."""


class BadURL(RetrieverError):
    """A URL that nobody can ask, or certificates that nobody can read."""


def without_password(text: str) -> str:
    """A text in which URLs have no user and password, to be shown or stored."""
    return re.sub(r"(?<=://)[^/?#\s'\"]*@", "", text)


class Connections:
    """Connections to servers, kept open for the next request, and at most `number` slots for
    requests under way in each event loop. A loop that ends closes its own, as `asyncio.run` does.

    aiohttp, not the httpx of our other requests: where hundreds are in flight a request takes a
    fifth of the processor's time. Like httpx it trusts the proxies that the environment names.
    `connect_s` bounds each connecting and `read_s` each silence of the server, in seconds.
    """

    def __init__(
        self,
        number: int,
        *,
        headers: Mapping[str, str] | None = None,
        connect_s: float | None = None,
        read_s: float | None = None,
    ) -> None:
        sent = {"Content-Type": "application/json", **(headers or {})}
        self._loops = PerEventLoop(functools.partial(_OfLoop, number, sent, connect_s, read_s))

    def slot(self) -> asyncio.Semaphore:
        """To be held (`async with`) while a request is under way, its further attempts included."""
        return self._loops.here().slots

    async def post(self, url: str, body: Any, max_bytes: int) -> Reply:
        """What the server at `url` answers to `body` as JSON. Redirections are not followed.

        Raises `NoReply`, which another attempt may change, and `BadURL`.
        """
        import aiohttp  # here: a tenth of a second

        session, content = self._loops.here().session, bytearray()
        sent = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        try:
            async with session.post(
                url, data=sent, proxy=_proxy(url), allow_redirects=False
            ) as reply:
                async for chunk in reply.content.iter_any():
                    content += chunk
                    if len(content) > max_bytes:
                        return Reply(reply.status, reply.headers, None)
            return Reply(reply.status, reply.headers, bytes(content))
        except (ValueError, aiohttp.NonHttpUrlClientError) as error:
            # of the URL, of a password in it besides a key, of the proxy
            raise BadURL(without_password(f"{type(error).__name__} {error}")) from None
        except (aiohttp.ClientError, OSError) as error:
            what = " ".join(f"{type(error).__name__} {error}".split())
            raise NoReply(without_password(what)[:LONGEST_REASON]) from error

    async def aclose(self) -> None:
        """Close those of the running event loop; a later request opens new ones."""
        ours = self._loops.pop()
        if ours is not None:
            await ours.guard.aclose()


class _OfLoop:
    """What belongs to one event loop, the running one."""

    def __init__(
        self,
        number: int,
        headers: Mapping[str, str],
        connect_s: float | None,
        read_s: float | None,
    ) -> None:
        import aiohttp

        self.slots = asyncio.Semaphore(number)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted()),  # the slots are the limit
            cookie_jar=aiohttp.DummyCookieJar(),  # one would tie us to a server of several
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=read_s),
            headers=headers,
            max_line_size=MAX_HEADER,
            max_field_size=MAX_HEADER,
        )
        self.guard = _closing(self.session)
        with contextlib.suppress(StopIteration):  # begin it: it yields at once
            self.guard.__anext__().__await__().send(None)


async def _closing(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Closes the session at its end. A loop that ends also ends the generators begun in it."""
    try:
        yield
    finally:
        await session.close()


@functools.cache
def trusted() -> ssl.SSLContext:
    """The certificates that httpx trusts: certifi's, or those of SSL_CERT_FILE and SSL_CERT_DIR.

    Raises `BadURL` where these name none.
    """
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:  # httpx names no file, and fails for http:// as well
        set_ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
        named = f"{set_[0]}={os.environ[set_[0]]}" if set_ else "certificates"
        fix = "unset it, or name a file of certificates"
        raise BadURL(f"{named}: {error}; {fix}") from None


@functools.lru_cache(maxsize=64)
def _proxy(url: str) -> str | None:
    """Of HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, unless NO_PROXY names the host.

    Kept for each URL: aiohttp's own look-up takes longer than the rest of a request.
    """
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    proxy: str | None = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or not parts.hostname or proxy_bypass(parts.hostname):
        return None
    if not proxy.startswith(("http://", "https://")):
        raise BadURL(f"the environment's proxy is {proxy.partition(':')[0]}://…, and not one for "
                     f"HTTP; set NO_PROXY={parts.hostname} to do without it")  # fmt: skip
    return proxy
