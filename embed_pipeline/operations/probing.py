"""Finds out what a server takes in a request, by asking it with a harmless word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import (
    PROBE_WORD,
    ConfigurationError,
    EmbeddingError,
    PermanentError,
    TooLargeError,
)
from embed_pipeline.domain.profiles import Learnt
from embed_pipeline.operations import wiring
from embed_pipeline.operations.findings import Finding, Mark

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from embed_pipeline.domain.ports import Embedder
    from embed_pipeline.settings import Settings

FEWEST_TOKENS: Final = 64
"""No server takes less of a text; it is the least that may be set."""
USUAL_INPUTS: Final = (1, 4, 8, 10, 16, 25, 32, 64, 96, 100, 128, 256, 512, 1_000, 1_024)
USUAL_TOKENS: Final = (FEWEST_TOKENS, 128, 256, 384, 512, 1_024, 2_048, 4_096)
"""What servers are limited to; a drain asks for these only, with four requests instead of a dozen.
"""

IsTaken = Callable[["Embedder", Sequence[PreparedText]], Awaitable[bool]]
"""Sends a request; says whether the server takes it."""
Takes = Callable[[int], Awaitable[bool]]
Remember = Callable[[Learnt], Awaitable[bool]]
"""Keeps what was found out; says whether it could."""


async def is_embedded(embedder: Embedder, texts: Sequence[PreparedText]) -> bool:
    """Send a request that is not counted, because it was asked for by hand."""
    try:
        return len((await embedder.embed(texts)).vectors) == len(texts)
    except (PermanentError, TooLargeError):
        return False


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks one server; ``is_exact`` finds each limit to the last text and token."""

    settings: Settings
    is_taken: IsTaken = is_embedded
    is_exact: bool = False

    async def found(self) -> Learnt | None:
        """What the server takes; None where it refuses the word in every form.

        Raises:
            EmbeddingError: it does not answer, so nothing is found out.
        """
        plain = await self._that_works()
        if plain is None:
            return None
        async with _opened(plain) as embedder:
            word, limits = embedder.prepare(PROBE_WORD), embedder.limits

            async def takes_inputs(number: int) -> bool:
                return await self.is_taken(embedder, [word] * number)

            async def takes_tokens(number: int) -> bool:
                # A word of several tokens may be one more than asked for, never one less.
                words = " ".join([PROBE_WORD] * (number // word.tokens))
                return await self.is_taken(embedder, [PreparedText(words, number)])

            # A limit or budget may allow less than a server: more is neither asked nor sent.
            most = self.settings.tokens_per_request or limits.tokens
            inputs = min(limits.inputs, max(1, most // word.tokens))
            tokens = max(FEWEST_TOKENS, min(limits.tokens_per_input, most))
            return Learnt(
                server=self.settings.unknown_server or "",
                inputs=await _most(inputs, takes_inputs, self._among(inputs, 1, USUAL_INPUTS)),
                tokens=await _most(
                    tokens, takes_tokens, self._among(tokens, FEWEST_TOKENS, USUAL_TOKENS)
                ),
                encoding=plain.profile.encoding,
                sends_dimensions=plain.profile.sends_dimensions,
                at=datetime.now(UTC),
            )

    async def _that_works(self) -> Settings | None:
        """The settings, with as little changed as the server needs to embed a word."""
        for changes in (
            {},
            {"send_dimensions": "false"},
            {"encoding": "float"},
            {"send_dimensions": "false", "encoding": "float"},
        ):
            tried = self.settings.model_copy(update=changes)
            async with _opened(tried) as embedder:
                if await self.is_taken(embedder, [embedder.prepare(PROBE_WORD)]):
                    return tried
        return None

    def _among(self, most: int, least: int, usual: Sequence[int]) -> Sequence[int]:
        if self.is_exact:
            return range(least, most)
        return [number for number in usual if number < most] or [least]


async def provider_misfits(
    settings: Settings, remember: Remember | None = None
) -> AsyncIterator[Finding]:
    """Name everything of a request that the server refuses, with what to set.

    With ``remember`` drains keep to what is found, so it is no fault of the settings. A dozen small
    requests at most for each limit that is too high.
    """
    try:
        found = await Probe(settings, is_exact=True).found()
    except EmbeddingError as error:
        detail = f"what it takes could not be found out: {error}"
        yield Finding("Provider", Mark.WARNING, detail, "Ask again later.")
        return
    if found is None:
        return
    is_kept = remember is not None and await remember(found)
    for what, setting in _misfits(found, settings):
        if is_kept:
            remedy = f"Drains keep to it from now on; {setting} says the same."
            yield Finding("Provider", Mark.WARNING, f"the server {what}", remedy)
        else:
            remedy = f"Set {setting}, or an EMBEDDING_PROFILE that says so."
            code = ConfigurationError.exit_code
            yield Finding("Provider", Mark.BAD, f"the server {what}", remedy, code)


def _misfits(found: Learnt, settings: Settings) -> Iterator[tuple[str, str]]:
    """What the server does not take of that which is sent, and the setting that says so."""
    profile = settings.profile
    limits = profile.limits(settings.dimensions)
    if found.sends_dimensions != profile.sends_dimensions:
        yield "refuses 'dimensions'", "EMBEDDING_SEND_DIMENSIONS=false"
    if found.encoding != profile.encoding:
        yield "refuses vectors in base64", "EMBEDDING_ENCODING=float"
    if found.inputs < limits.inputs:
        what = f"takes at most {found.inputs} texts in a request, not {limits.inputs}"
        yield what, f"EMBEDDING_MAX_INPUTS={found.inputs}"
    if found.tokens < limits.tokens_per_input:
        what = f"takes at most about {found.tokens} tokens of a text, not {limits.tokens_per_input}"
        yield what, f"EMBEDDING_MAX_TOKENS={found.tokens}"


async def _most(wanted: int, takes: Takes, among: Sequence[int]) -> int:
    """The largest number that is taken: ``wanted``, or one of ``among``, of which the first is."""
    if await takes(wanted):
        return wanted
    taken, refused = 0, len(among)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if await takes(among[middle]):
            taken = middle
        else:
            refused = middle
    return among[taken]


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[Embedder]:
    embedder = wiring.open_embedder(settings)
    try:
        yield embedder
    finally:
        await embedder.close()
