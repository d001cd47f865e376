"""The addresses of retrieval servers that are alike, and which of them to ask next."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from retrievers.base import RetrieverError

if TYPE_CHECKING:
    import httpx

REST_S = 5.0  # an address that failed is left alone, unless all have failed
_COMMA = re.compile(r"\s*,\s*(?=https?://)")  # a path may have commas of its own


class Address:
    """Where a server is; `shown` and `health` tell no password or key."""

    def __init__(self, url: str) -> None:
        endpoint = _endpoint(url)
        shown = endpoint.copy_with(userinfo=b"", query=None)
        self.url, self.shown = str(endpoint), str(shown)
        self.health = str(shown.copy_with(path="/health"))
        self.again = 0.0  # after a fault: when it may be asked again, by `time.monotonic`
        self.digest = ""  # of its index, in its last answer; "" if it tells none

    def fails(self, rest_s: float = REST_S) -> None:
        """Others are asked before it, for `rest_s` seconds."""
        self.again = time.monotonic() + rest_s

    def answers(self) -> None:
        """It is asked in its turn."""
        self.again = 0.0


class Addresses:
    """One or several, given as a list or as URLs with commas between. RetrieverError for others."""

    def __init__(self, url: str | Sequence[str]) -> None:
        urls = _COMMA.split(url) if isinstance(url, str) else url
        if not isinstance(urls, Sequence) or not urls:
            raise RetrieverError(f"retriever URL {url!r}; give one, or a list of them")
        self.all = [Address(one) for one in urls]
        self._turns = count()

    def answers(self, address: Address, digest: str) -> None:
        """`address` is well, and its index has that digest.

        Raises RetrieverError when another one's index has another.
        """
        address.answers()
        address.digest = digest
        for other in self.all:
            if digest and other.digest and other.digest != digest:
                raise RetrieverError(
                    f"{address.shown} and {other.shown} are servers of different indexes (digests "
                    f"{digest[:32]} and {other.digest[:32]}); name servers of the same one"
                )

    def in_order(self) -> list[Address]:
        """All, the one whose turn it is first, those that rest last.

        One that has rested enough is asked by a single caller; the others wait for how that ends.
        """
        turn, now = next(self._turns) % len(self.all), time.monotonic()
        ring = self.all[turn:] + self.all[:turn]
        ring.sort(key=lambda address: address.again > now)
        if ring[0].again:
            ring[0].fails()
        return ring


def _endpoint(url: str) -> httpx.URL:
    import httpx

    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode().encode("idna")  # what the look-up of the host will do
    except (httpx.InvalidURL, TypeError, UnicodeError) as error:
        hint = "; write http:// before each of several" if "," in str(url) else ""
        raise RetrieverError(f"retriever URL {url!r}: {error}{hint}") from None
    known = parsed.scheme in ("http", "https") and parsed.host and "," not in parsed.host
    if not known or not 0 < (80 if parsed.port is None else parsed.port) < 2**16:
        raise RetrieverError(f"retriever URL {url!r}; it must be like http://host:8000/retrieve")
    return parsed if parsed.path not in ("", "/") else parsed.copy_with(path="/retrieve")
