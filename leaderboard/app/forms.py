"""A multipart form as it comes: no file of it is kept before its token was looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from leaderboard.app.problems import Problem

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MOST_FIELDS = 8
LONGEST_HEAD = 4096  # bytes of a field's headers

Piece = tuple[str, bytes]


class _Fields:
    """What the parser tells of a chunk: `pieces` (name of the field, bytes)."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._count, self._size = 0, 0
        self._name = self._header = self._value = b""

    def callbacks(self) -> MultipartCallbacks:
        """For `MultipartParser`."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._put,
            "on_header_end": self._head,
            "on_headers_finished": lambda: self._piece(b""),
            "on_part_data": lambda content, start, end: self._piece(content[start:end]),
        }

    def _begin(self) -> None:
        self._count += 1
        if self._count > MOST_FIELDS:
            raise Problem(422, f"the form has more than {MOST_FIELDS} fields")
        self._name, self._size = b"", 0

    def _field(self, content: bytes, start: int, end: int) -> None:
        self._count_head(end - start)
        self._header += content[start:end]

    def _put(self, content: bytes, start: int, end: int) -> None:
        self._count_head(end - start)
        self._value += content[start:end]

    def _count_head(self, size: int) -> None:
        self._size += size
        if self._size > LONGEST_HEAD:
            raise Problem(422, f"a field of the form has more than {LONGEST_HEAD} bytes of headers")

    def _head(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._name = parse_options_header(self._value)[1].get(b"name", b"")
        self._header = self._value = b""

    def _piece(self, content: bytes) -> None:
        self.pieces.append((self._name.decode("utf-8", "replace"), content))


async def pieces(content_type: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[Piece]:
    """(name, bytes) of the fields of a form, in their order and as they come; at least one a field.

    Raises `Problem` 415 for another type, 422 for what is no form.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
        raise Problem(415, f"Content-Type is {content_type!r:.80}; send multipart/form-data")
    fields = _Fields()
    parser = MultipartParser(boundary, fields.callbacks())
    try:
        async for chunk in chunks:
            parser.write(chunk)
            for piece in fields.pieces:
                yield piece
            fields.pieces.clear()
        parser.finalize()
    except FormParserError as error:
        raise Problem(422, f"not a form ({error})"[:300]) from None
