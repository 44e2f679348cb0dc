"""OpenAI's Batch API, and every server that offers it in the same form."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import openai
from openai.types import Batch as OpenAIBatch

from embed_pipeline.domain.batch import (
    GIVEN_UP,
    AnswerCutError,
    BatchAnswer,
    BatchRefusedError,
    ProviderBatch,
)
from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import PermanentError, TransientError
from embed_pipeline.domain.profiles import OPENAI, Profile
from embed_pipeline.domain.redact import said_by_provider
from embed_pipeline.embedding.answers import AnswerReader
from embed_pipeline.embedding.client import open_client, sends_dimensions

ENDPOINT: Final = "/v1/embeddings"
WINDOW: Final = "24h"
TIMEOUT: Final = timedelta(minutes=10)
"""For a file of 150 MB; the turn of its sender is renewed meanwhile."""
FILES_LAST: Final = int(timedelta(days=7).total_seconds())
"""What a crash leaves at the provider is gone after that."""
LISTED: Final = 100
PAGES: Final = 10
"""As many batches are looked through for one whose id was lost."""
LONGEST_SAID: Final = 300
_REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 422, 429, 501})
"""Answers after which nothing was made; after any other that is open."""
_CODE: Final = re.compile(r"[a-z0-9_]{1,60}\Z")
_TEXTS_FAULT: Final = frozenset({400, 413, 422})


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
        self._api_key = api_key
        self._body: dict[str, Any] = {
            "model": model,
            # A quarter of the bytes, and a tenth of the time to read them.
            "encoding_format": profile.encoding,
            **({"dimensions": dimensions} if sends_dimensions(profile, model) else {}),
            **profile.type_for(is_question=False),
        }
        self._client = open_client(
            model=model,
            api_key=api_key,
            base_url=base_url,
            timeout=TIMEOUT,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    def line(self, custom_id: str, text: PreparedText) -> bytes:
        """A line of the input file: one text, so that no other one can spoil it."""
        body = {**self._body, "input": [text.sent]}
        line = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"

    async def upload(self, path: Path, *, name: str) -> str:
        with path.open("rb") as file:
            try:
                sent = await self._client.files.create(
                    file=(name, file),
                    purpose="batch",
                    expires_after={"anchor": "created_at", "seconds": FILES_LAST},
                )
            except openai.APIError as error:
                meaning = self._refused(error)
            else:
                return sent.id
        raise meaning

    async def create(self, file: str, metadata: Mapping[str, str]) -> ProviderBatch:
        """Create a batch; without an answer it is unknown whether there is one."""
        try:
            made = await self._client.batches.create(
                input_file_id=file,
                endpoint=ENDPOINT,
                completion_window=WINDOW,
                metadata=dict(metadata),
            )
        except openai.APIStatusError as error:
            if error.status_code not in _REFUSALS:
                raise
            meaning = self._refused(error)
        else:
            return self._shown(made)
        raise meaning

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

    async def read(self, id_: str) -> ProviderBatch | None:
        try:
            return self._shown(await self._client.batches.retrieve(id_))
        except openai.NotFoundError:
            return None

    async def cancel(self, id_: str) -> None:
        """Let the provider stop; one that is over, or that it does not know, is no error."""
        with suppress(openai.NotFoundError, openai.BadRequestError, openai.ConflictError):
            await self._client.batches.cancel(id_)

    async def answers(self, file: str) -> AsyncIterator[BatchAnswer]:
        is_cut = False
        try:
            async with self._client.files.with_streaming_response.content(file) as answer:
                async for line in answer.iter_lines():
                    if line.strip():
                        yield self._answer(line)
        except (openai.APIError, ValueError, LookupError, TypeError, OSError) as error:
            is_cut = not isinstance(error, openai.APIStatusError)
            if not is_cut:
                raise
        except Exception as error:
            # The transport's own errors, which the client lets through while it streams.
            if not type(error).__module__.startswith("httpx"):
                raise
            is_cut = True
        if is_cut:
            raise AnswerCutError(f"the answer in file {file} ended before its end")

    async def delete(self, file: str) -> None:
        with suppress(openai.NotFoundError):
            await self._client.files.delete(file)

    async def close(self) -> None:
        await self._client.close()

    def _answer(self, line: str) -> BatchAnswer:
        found = json.loads(line)
        name = str(found["custom_id"])
        error, response = found.get("error"), found.get("response")
        if error:
            code = str(error.get("code"))
            if code in GIVEN_UP:
                return BatchAnswer(name, is_untried=True)
            return BatchAnswer(name, error=TransientError(f"no answer in the batch{_codes(found)}"))
        status, body = response["status_code"], response["body"]
        if status != 200:
            kind = PermanentError if status in _TEXTS_FAULT else TransientError
            said = f"{status}{_codes(body)}"
            return BatchAnswer(
                name, error=kind(f"the provider refused the text in a batch: {said}")
            )
        reader = AnswerReader(inputs=1, dimensions=self._dimensions)
        try:
            reader.feed(json.dumps(body).encode())
            [vector], tokens = reader.finish()
        except Exception as stumbled:
            unreadable = f"the provider's answer is unreadable ({type(stumbled).__name__})"
            return BatchAnswer(name, error=TransientError(unreadable))
        return BatchAnswer(name, vector, tokens)

    def _words(self, said: object) -> str:
        return said_by_provider(str(said), texts=[], secret=self._api_key)[:LONGEST_SAID]

    def _refused(self, error: openai.APIError) -> BatchRefusedError:
        return BatchRefusedError(f"{type(error).__name__}: {self._words(error.message)}")

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


def _codes(body: Any) -> str:
    """Error codes only: messages may quote the text."""
    error = body.get("error") if isinstance(body, dict) else None
    said = [error.get("type"), error.get("code")] if isinstance(error, dict) else []
    return "".join(f" {word}" for word in said if isinstance(word, str) and _CODE.match(word))
