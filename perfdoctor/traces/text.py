"""The text of a trace in blocks: plain or compressed, whole or cut. Memory holds one block at a time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .events import Event, File, Refused, decode, decode_file, last_separator, salvage, washed

BLOCK_BYTES = 4 << 20
"""Of text decoded at once: some 10,000 events. Smaller blocks decode no slower, larger ones take memory."""
MOST_BESIDE = 64 << 20
"""Bytes before the events, after them, and of one event: no profiler writes so much, so it is another file."""
_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BEFORE = b" \t\r\n\xef\xbb\xbf"
"""White space, and the mark of UTF-8."""
GZIP = b"\x1f\x8b"


class NoEventsError(Exception):
    """The text has no list of events; its argument is the text's beginning."""


class TraceText:
    """Events of one file, block by block; what it says besides is known when they are through."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = False
        """The text ends in the middle."""
        self.unread = 0
        """Events that nothing could be made of."""
        self.header = File()
        self.header_unread = False
        self.trailer = File()
        self._bare = False
        """A list of events without an object around it, as Chrome allows."""

    def blocks(self) -> Iterator[list[Event]]:
        """Raises NoEventsError, and OSError as opening does."""
        source = self._text()
        rest = self._header(source)
        for piece in source:
            # A piece later, so that the file's end is never taken for its middle.
            events, rest, ended = self._some(rest)
            rest += piece
            yield events
            if ended:
                self._trailer(rest, source)
                return
            if len(rest) > MOST_BESIDE:
                self.cut = True
                return
        yield self._last(rest)

    def begins(self) -> bool:
        """Whether events come, as far as the beginning shows; what is said before them is known then."""
        source = self._text()
        try:
            self._header(source)
        except (NoEventsError, OSError):
            return False
        finally:
            source.close()
        return True

    def said(self, field: str) -> Any:
        """What the file says besides its events, before or behind them."""
        behind = getattr(self.trailer, field)
        return getattr(self.header, field) if behind is None else behind

    @property
    def place(self) -> tuple[int | None, int | None]:
        """Rank and world size, where they are told."""
        said = self.said("distributedInfo")
        if not isinstance(said, dict):
            return None, None
        rank, world_size = (value if type(value) is int else None for value in map(said.get, ("rank", "world_size")))
        return rank, world_size

    def _header(self, source: Iterator[bytes]) -> bytes:
        """Reads up to the first event; what of the text follows."""
        text = b""
        for piece in source:
            text += piece
            if text.lstrip(_BEFORE)[:1] == b"[" and b'"ph"' in text:
                self._bare = True
                start = text.index(b"[") + 1
            elif text.lstrip(_BEFORE)[:1] not in (b"{", b"") or len(text) > MOST_BESIDE:
                break
            elif found := _START.search(text):
                start = found.end()
                try:
                    self.header = decode_file(text[:start] + b"]}")
                except Refused:
                    self.header_unread = True
            else:
                continue
            return text[start:]
        raise NoEventsError(text[:1000])

    def _text(self) -> Generator[bytes, None, None]:
        """The file's text in pieces; notes where compressed text breaks off."""
        with self.path.open("rb") as file:
            compressed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            pieces = iter(partial(file.read, BLOCK_BYTES // 4 if compressed else BLOCK_BYTES), b"")
            yield from self._inflated(pieces) if compressed else pieces

    def _inflated(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        whole = False
        inflater = zlib.decompressobj(wbits=31)
        for compressed in pieces:
            while compressed:
                try:
                    text = inflater.decompress(compressed, BLOCK_BYTES)
                except zlib.error:
                    self.cut = True
                    return
                yield text
                compressed, whole = inflater.unconsumed_tail, inflater.eof
                if inflater.eof:
                    # A file may consist of several, one after the other, and of zeros behind them.
                    compressed = inflater.unused_data.lstrip(b"\0")
                    inflater = zlib.decompressobj(wbits=31)
        self.cut |= not whole

    def _some(self, text: bytes) -> tuple[list[Event], bytes, bool]:
        """Events of a block, what is left of it, and whether that is what follows the events."""
        end, next_start = last_separator(text)
        for attempt in (bytes, washed):
            try:
                return decode(attempt(text[:end])), text[next_start:], False
            except Refused:
                continue
        events, unread, closed = salvage(text[:end])
        self.unread += unread
        return events, text[closed if closed >= 0 else next_start :], closed >= 0

    def _last(self, text: bytes) -> list[Event]:
        """What is left when the file is at its end: events, the end of their list, and what follows."""
        closing = b"}" if self._bare else b""
        for attempt in (bytes, washed):
            try:
                self.trailer = decode_file(b'{"traceEvents":[%b%b' % (attempt(text), closing))
                return self.trailer.traceEvents
            except Refused:
                continue
        events, unread, end = salvage(text)
        self.unread += unread
        if end >= 0:
            self._trailer(text[end:], iter(()))
        else:
            self.cut = True
        return events

    def _trailer(self, text: bytes, more: Iterator[bytes]) -> None:
        """What follows the events."""
        for piece in more:
            text += piece
            if len(text) > MOST_BESIDE:
                return
        try:
            self.trailer = decode_file(b'{"traceEvents":[]%b%b' % (text, b"}" if self._bare else b""))
        except Refused:
            self.cut = True
