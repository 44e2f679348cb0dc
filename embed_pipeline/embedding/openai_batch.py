"""OpenAI's Batch API, and every server that offers it in the same form."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import openai
from openai.types import Batch as OpenAIBatch

from embed_pipeline.domain.batch import (
    AnswerCutError,
    BatchAnswer,
    BatchRefusedError,
    ProviderBatch,
)
from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import EmbeddingError, OutageError, TransientError
from embed_pipeline.domain.profiles import OPENAI, Profile
from embed_pipeline.domain.redact import said_by_provider
from embed_pipeline.embedding.batch_lines import read_line
from embed_pipeline.embedding.client import open_client, sends_dimensions
from embed_pipeline.embedding.openai import classify

if TYPE_CHECKING:
    from types import CoroutineType

ENDPOINT: Final = "/v1/embeddings"
WINDOW: Final = "24h"
ANSWER_WITHIN: Final = timedelta(seconds=20)
"""For a question of a few bytes: a drain waits for it before it leases."""
FILE_WITHIN: Final = timedelta(minutes=10)
"""For a file of 150 MB; the turn of its sender is renewed meanwhile."""
FILES_LAST: Final = int(timedelta(days=7).total_seconds())
"""What a crash leaves at the provider is gone after that."""
LISTED: Final = 100
PAGES: Final = 10
"""As many batches are looked through for one whose id was lost."""
LONGEST_SAID: Final = 300
_REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 422, 429, 501})
"""Answers after which nothing was made; after any other that is open."""

_Params = ParamSpec("_Params")
_Answer = TypeVar("_Answer")
_Asking = Callable[Concatenate["OpenAIBatches", _Params], "CoroutineType[Any, Any, _Answer]"]


def _explained(asking: _Asking[_Params, _Answer]) -> _Asking[_Params, _Answer]:
    """Turn what the client raises into its meaning, without the request that it would hold."""

    @wraps(asking)
    async def asked(
        self: OpenAIBatches, /, *args: _Params.args, **kwargs: _Params.kwargs
    ) -> _Answer:
        try:
            return await asking(self, *args, **kwargs)
        except openai.APIError as error:
            meaning = self.meaning_of(error)
        raise meaning

    return asked


class OpenAIBatches:
    """Never repeats a request: a second ``create`` would be a second batch, charged in full."""

    def __init__(
        self,
        *,
        model: str,
        dimensions: int,
        api_key: str,
        base_url: str | None = None,
        profile: Profile = OPENAI,
    ) -> None:
        self._dimensions = dimensions
        self._sends_dimensions = sends_dimensions(profile, model)
        self._api_key = api_key
        self._body: dict[str, Any] = {
            "model": model,
            # A quarter of the bytes, and a tenth of the time to read them.
            "encoding_format": profile.encoding,
            **({"dimensions": dimensions} if self._sends_dimensions else {}),
            **profile.type_for(is_question=False),
        }
        self._client = open_client(
            model=model,
            api_key=api_key,
            base_url=base_url,
            timeout=ANSWER_WITHIN,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        self._for_a_file = openai.Timeout(
            FILE_WITHIN.total_seconds(), connect=ANSWER_WITHIN.total_seconds()
        )

    def line(self, custom_id: str, text: PreparedText) -> bytes:
        """A line of the input file: one text, so that no other one can spoil it."""
        body = {**self._body, "input": [text.sent]}
        line = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"

    @_explained
    async def upload(self, path: Path, *, name: str) -> str:
        with path.open("rb") as file:
            sent = await self._made(
                self._client.files.create(
                    file=(name, file),
                    purpose="batch",
                    expires_after={"anchor": "created_at", "seconds": FILES_LAST},
                    timeout=self._for_a_file,
                )
            )
        return sent.id

    @_explained
    async def create(self, file: str, metadata: Mapping[str, str]) -> ProviderBatch:
        """Create a batch; without an answer it is unknown whether there is one."""
        made = await self._made(
            self._client.batches.create(
                input_file_id=file,
                endpoint=ENDPOINT,
                completion_window=WINDOW,
                metadata=dict(metadata),
            )
        )
        return self._shown(made)

    @_explained
    async def find(self, metadata: Mapping[str, str]) -> ProviderBatch | None:
        """Look through the latest batches for one with this metadata."""
        page = await self._client.batches.list(limit=LISTED)
        for _ in range(PAGES):
            for batch in page.data:
                if metadata.items() <= (batch.metadata or {}).items():
                    return self._shown(batch)
            if not page.has_next_page():
                break
            page = await page.get_next_page()
        return None

    @_explained
    async def read(self, id_: str) -> ProviderBatch | None:
        try:
            return self._shown(await self._client.batches.retrieve(id_))
        except openai.NotFoundError:
            return None

    @_explained
    async def cancel(self, id_: str) -> None:
        """Let the provider stop; one that is over, or that it does not know, is no error."""
        with suppress(openai.NotFoundError, openai.BadRequestError, openai.ConflictError):
            await self._client.batches.cancel(id_)

    async def answers(self, file: str) -> AsyncGenerator[BatchAnswer]:
        meaning: Exception = AnswerCutError(f"the answer in file {file} ended before its end")
        try:
            async with self._client.files.with_streaming_response.content(
                file, timeout=self._for_a_file
            ) as answer:
                async for line in answer.iter_lines():
                    if line.strip():
                        yield self._answer(line)
            return
        except openai.APIStatusError as error:
            meaning = self.meaning_of(error)
        except (openai.APIError, ValueError, LookupError, TypeError, OSError):
            pass
        except Exception as error:
            # The transport's own errors, which the client lets through while it streams.
            if not type(error).__module__.startswith("httpx"):
                raise
        raise meaning

    @_explained
    async def delete(self, file: str) -> None:
        with suppress(openai.NotFoundError):
            await self._client.files.delete(file)

    async def close(self) -> None:
        await self._client.close()

    def meaning_of(self, error: openai.APIError) -> EmbeddingError:
        """What an error means for whoever works on a batch."""
        meaning = classify(error, self._words(error.message))
        is_away = isinstance(error, openai.APIConnectionError)
        if is_away and isinstance(meaning, TransientError):
            return OutageError(str(meaning))
        return meaning

    async def _made(self, making: Awaitable[_Answer]) -> _Answer:
        """What was made; raises ``BatchRefusedError`` only if nothing was."""
        try:
            return await making
        except openai.APIStatusError as error:
            if error.status_code not in _REFUSALS:
                raise
            meaning = BatchRefusedError(f"{type(error).__name__}: {self._words(error.message)}")
        raise meaning

    def _answer(self, line: str) -> BatchAnswer:
        return read_line(line, dimensions=self._dimensions, sends_dimensions=self._sends_dimensions)

    def _words(self, said: object) -> str:
        return said_by_provider(str(said), texts=[], secret=self._api_key)[:LONGEST_SAID]

    def _shown(self, batch: OpenAIBatch) -> ProviderBatch:
        counts = batch.request_counts
        errors = batch.errors.data if batch.errors else None
        said = "; ".join(f"{error.code}: {self._words(error.message)}" for error in errors or ())
        return ProviderBatch(
            id=batch.id,
            status=batch.status,
            done=counts.completed if counts else 0,
            failed=counts.failed if counts else 0,
            output_file=batch.output_file_id,
            error_file=batch.error_file_id,
            expires_at=datetime.fromtimestamp(batch.expires_at, UTC) if batch.expires_at else None,
            error=said or None,
        )
