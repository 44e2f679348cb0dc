"""Finds out what a server takes in a request, by asking it with a harmless word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import (
    PROBE_WORD,
    ConfigurationError,
    EmbeddingError,
    PermanentError,
    TooLargeError,
)
from embed_pipeline.operations import wiring
from embed_pipeline.operations.findings import Finding, Mark

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from embed_pipeline.domain.ports import Embedder
    from embed_pipeline.settings import Settings

FEWEST_TOKENS: Final = 64
"""Nobody takes less of a text; it is the least that may be set."""

Takes = Callable[[int], Awaitable[bool]]


async def provider_misfits(settings: Settings) -> AsyncIterator[Finding]:
    """Name each part of a request that the server refuses, and the setting to change.

    A dozen small requests at most for each limit that is too high; a server that does not answer
    at all has been reported already, and nothing is found.
    """
    try:
        plain = await _that_works(settings)
    except EmbeddingError:
        return
    if plain is None:
        return
    try:
        set_now = settings.profile
        if plain.profile.sends_dimensions != set_now.sends_dimensions:
            yield _misfit("refuses 'dimensions'", "EMBEDDING_SEND_DIMENSIONS=false")
        if plain.profile.encoding != set_now.encoding:
            yield _misfit("refuses vectors in base64", "EMBEDDING_ENCODING=float")
        async with _opened(plain) as embedder:
            async for finding in _limits(embedder):
                yield finding
    except EmbeddingError as error:
        detail = f"what it takes could not be found out: {error}"
        yield Finding("Provider", Mark.WARNING, detail, "Ask again later.")


async def _that_works(settings: Settings) -> Settings | None:
    """The settings, changed as little as needed for the server to embed a word."""
    for changes in (
        {},
        {"send_dimensions": "false"},
        {"encoding": "float"},
        {"send_dimensions": "false", "encoding": "float"},
    ):
        tried = settings.model_copy(update=changes)
        async with _opened(tried) as embedder:
            if await _is_taken(embedder, [embedder.prepare(PROBE_WORD)]):
                return tried
    return None


async def _limits(embedder: Embedder) -> AsyncIterator[Finding]:
    word = embedder.prepare(PROBE_WORD)
    limits = embedder.limits

    async def takes_inputs(number: int) -> bool:
        return await _is_taken(embedder, [word] * number)

    async def takes_tokens(number: int) -> bool:
        # A word of several tokens may be one more than asked for, never one less.
        words = " ".join([PROBE_WORD] * (number // word.tokens))
        return await _is_taken(embedder, [PreparedText(words, number)])

    inputs = await _most(limits.inputs, takes_inputs, least=1)
    if inputs < limits.inputs:
        yield _misfit(
            f"takes at most {inputs} texts in a request, not {limits.inputs}",
            f"EMBEDDING_MAX_INPUTS={inputs}",
        )
    tokens = await _most(limits.tokens_per_input, takes_tokens, least=FEWEST_TOKENS)
    if tokens < limits.tokens_per_input:
        yield _misfit(
            f"takes at most about {tokens} tokens of a text, not {limits.tokens_per_input}",
            f"EMBEDDING_MAX_TOKENS={tokens}",
        )


async def _most(wanted: int, takes: Takes, *, least: int) -> int:
    """The largest number up to ``wanted`` that works; ``least`` is assumed to."""
    if await takes(wanted):
        return wanted
    taken, refused = least, wanted
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if await takes(middle):
            taken = middle
        else:
            refused = middle
    return taken


async def _is_taken(embedder: Embedder, texts: Sequence[PreparedText]) -> bool:
    try:
        return len((await embedder.embed(texts)).vectors) == len(texts)
    except (PermanentError, TooLargeError):
        return False


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[Embedder]:
    embedder = wiring.open_embedder(settings)
    try:
        yield embedder
    finally:
        await embedder.close()


def _misfit(what: str, setting: str) -> Finding:
    remedy = f"Set {setting}, or an EMBEDDING_PROFILE that says so."
    return Finding("Provider", Mark.BAD, f"the server {what}", remedy, ConfigurationError.exit_code)
