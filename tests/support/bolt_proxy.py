"""A proxy between the driver and Neo4j that loses the acknowledgement of a commit.

It follows the Bolt protocol (version 5 and later, both handshakes) just far enough to know which
message is the COMMIT of a write transaction, and which answer belongs to it. It can also be a slow
line, or one on which nothing arrives.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit

BEGIN, COMMIT, RUN, GOODBYE = 0x11, 0x12, 0x10, 0x02
SUMMARIES = (0x70, 0x7E, 0x7F)  # SUCCESS, IGNORED, FAILURE: each ends the answer to a request
MANIFEST = b"\x00\x00\x01\xff"
"""The server's answer that lets the client choose a version from a list."""
READ_MODE = b"\x84mode\x81r"
"""In the metadata of BEGIN, as PackStream writes it."""
QUIET = 0.1
"""Seconds. Waiting for a lock of the held transaction has no other sign than that nothing moves."""


class Cut(StrEnum):
    """Where the connection breaks; what the client sees is the same."""

    BEFORE = "before the commit reaches the server"
    AFTER = "after the server has committed"
    IN_FLIGHT = "while the server commits"
    LATE = "so that the commit arrives when the repetition waits for it"


@dataclass(frozen=True, slots=True)
class Weather:
    """How messages fare on their way, in both directions."""

    latency: float = 0.0
    """Seconds per message."""
    bytes_per_second: float = math.inf
    is_silent: bool = False
    """Connections are accepted and messages taken, but they arrive only when this is over."""


CALM = Weather()


class _CutError(Exception):
    """Ends the connection."""


@dataclass(eq=False)
class _Link:
    """One connection of the client, and its own to the server."""

    client_in: asyncio.StreamReader
    client_out: asyncio.StreamWriter
    server_in: asyncio.StreamReader
    server_out: asyncio.StreamWriter
    travel: Callable[[int], Awaitable[None]]
    """Returns when a message of so many bytes has arrived."""
    unanswered: int = 0
    messages: int = 0
    is_read: bool = False
    is_cut: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        self.is_cut = True
        self.client_out.transport.abort()

    async def request(self, message: bytes) -> None:
        self.answered.clear()
        self.messages += 1
        self.unanswered += _tag(message) not in (None, GOODBYE)
        await self.travel(len(message))
        await _send(self.server_out, message)

    async def relay_answers(self) -> None:
        while True:
            message = await _read_message(self.server_in)
            self.messages += 1
            self.unanswered -= _tag(message) in SUMMARIES
            await self.travel(len(message))
            if not self.is_cut:
                await _send(self.client_out, message)
            if self.unanswered == 0:
                self.answered.set()

    async def quiet(self) -> None:
        """Return when no message has passed for a while."""
        seen = None
        while seen != self.messages:
            seen = self.messages
            await asyncio.sleep(QUIET)

    async def shake_hands(self) -> None:
        offer = await self.client_in.readexactly(20)
        await self.travel(len(offer))
        await _send(self.server_out, offer)
        answer = await self.server_in.readexactly(4)
        await _send(self.client_out, answer)
        if answer != MANIFEST:
            return
        count, raw = await _read_varint(self.server_in)
        offers = await self.server_in.readexactly(4 * count)
        _, capabilities = await _read_varint(self.server_in)
        await _send(self.client_out, raw + offers + capabilities)
        choice = await self.client_in.readexactly(4)
        _, capabilities = await _read_varint(self.client_in)
        await _send(self.server_out, choice + capabilities)


class BoltProxy:
    """``async with BoltProxy(uri_of_the_server) as proxy`` listens at ``proxy.uri``."""

    def __init__(self, uri: str) -> None:
        address = urlsplit(uri)
        self._server = (address.hostname or "127.0.0.1", address.port or 7687)
        self._planned: deque[Cut] = deque()
        self._late: list[asyncio.Future[_Link]] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._weather = CALM
        self._is_heard = asyncio.Event()
        self._is_heard.set()
        self.cuts: list[Cut] = []

    @property
    def uri(self) -> str:
        host, port = self._listener.sockets[0].getsockname()
        return f"bolt://{host}:{port}"

    def cut_next_commits(self, count: int, cut: Cut) -> None:
        """Cut so many write transactions at their commit, after those already asked for."""
        self._planned.extend([cut] * count)

    @property
    def uncut(self) -> int:
        """How many of the cuts asked for have not happened yet."""
        return len(self._planned)

    def change_weather(self, weather: Weather) -> None:
        """From now on, for all connections, old and new."""
        self._weather = weather
        if weather.is_silent:
            self._is_heard.clear()
        else:
            self._is_heard.set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._listener.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            server = await asyncio.open_connection(*self._server)
            link = _Link(reader, writer, *server, self._travel)
            writers.append(link.server_out)
            await link.shake_hands()
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(link.relay_answers())
                both_ways.create_task(self._relay_requests(link))
        except* (_CutError, OSError, EOFError):
            pass
        finally:
            for side in writers:
                side.transport.abort()

    async def _travel(self, size: int) -> None:
        await self._is_heard.wait()
        delay = self._weather.latency + size / self._weather.bytes_per_second
        if delay:
            await asyncio.sleep(delay)

    async def _relay_requests(self, link: _Link) -> None:
        while True:
            message = await _read_message(link.client_in)
            tag = _tag(message)
            if tag == BEGIN:
                link.is_read = READ_MODE in message
            if tag == COMMIT and not link.is_read and self._planned:
                await self._cut(link, message, self._planned.popleft())
            await link.request(message)
            if tag == RUN:
                while self._late:
                    self._late.pop().set_result(link)

    async def _cut(self, link: _Link, commit: bytes, cut: Cut) -> None:
        self.cuts.append(cut)
        if cut is Cut.LATE:
            self._late.append(repeat := asyncio.get_running_loop().create_future())
            link.cut()
            await (await repeat).quiet()
        if cut is not Cut.BEFORE:
            link.is_cut = True
            await link.request(commit)
            if cut is Cut.IN_FLIGHT:
                link.cut()
            await link.answered.wait()
        raise _CutError


def _tag(message: bytes) -> int | None:
    """The kind of a message: the byte after the marker of its structure; a keep-alive has none."""
    return message[3] if len(message) > 4 else None


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """All chunks of a message with their headers; an empty chunk ends it."""
    message = b""
    while True:
        header = await reader.readexactly(2)
        message += header + await reader.readexactly(int.from_bytes(header))
        if header == b"\x00\x00":
            return message


async def _read_varint(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """A number in groups of seven bits, lowest first, and its bytes."""
    raw = await reader.readexactly(1)
    while raw[-1] & 0x80:
        raw += await reader.readexactly(1)
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw)), raw
