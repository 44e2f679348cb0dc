"""OpenAI, and every server that speaks its protocol."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import openai

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    RateLimitedError,
    TooLargeError,
    TransientError,
)
from embed_pipeline.embedding.tokens import prepare

REQUEST_TIMEOUT: Final = timedelta(seconds=60)
"""The client's own default of 600 s is twice as long as a lease."""


class OpenAIEmbedder:
    """One API call per batch; never retries by itself.

    Retrying is the queue's work: it survives a crash, counts attempts and lets another worker
    take over. A second retry loop in here would hide all three.
    """

    limits = RequestLimits()

    def __init__(
        self, *, model: str, dimensions: int, api_key: str, base_url: str | None = None
    ) -> None:
        self.model = model
        self.dimensions = dimensions
        self._api_key = api_key
        self._client = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url,
            timeout=REQUEST_TIMEOUT.total_seconds(),
            max_retries=0,
        )

    def prepare(self, text: str) -> PreparedText:
        """Count the tokens of a text and cut it if it is too long for the model."""
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Embed all texts in one request, in their order.

        Raises:
            EmbeddingError: what the provider's answer means for the queue.
        """
        try:
            # No encoding_format: the client then asks for base64, 19 times faster to read.
            answer = await self._client.embeddings.create(
                model=self.model,
                input=[text.text for text in texts],
                dimensions=self._requested_dimensions(),
            )
            items = sorted(answer.data, key=lambda item: item.index)
            return Embedded([item.embedding for item in items], answer.usage.total_tokens)
        except openai.APIError as error:
            raise classify(error, secret=self._api_key) from None
        except (AttributeError, TypeError, ValueError) as error:
            # HTML, truncated JSON or no data in an answer that says 200.
            raise TransientError(
                f"the provider's answer is unreadable ({type(error).__name__})"
            ) from error

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    def _requested_dimensions(self) -> int | openai.Omit:
        # Older models refuse the parameter; theirs is the only length they have.
        return openai.omit if self.model == "text-embedding-ada-002" else self.dimensions


def classify(error: openai.APIError, *, secret: str) -> EmbeddingError:
    """Say what a provider's error means for the queue; the only place that knows."""
    # Some servers repeat the key they refuse.
    message = f"{type(error).__name__}: {error.message}".replace(secret, "***")
    match error:
        # OpenAI reports an empty account as 429 too, and waiting will not fill it.
        case openai.RateLimitError(code="insufficient_quota"):
            return CriticalError(message)
        case openai.RateLimitError() if "request too large" in message.lower():
            return TooLargeError(message)
        case openai.RateLimitError():
            return RateLimitedError(message, retry_after=_retry_after(error))
        case openai.AuthenticationError() | openai.PermissionDeniedError() | openai.NotFoundError():
            return CriticalError(message)
        # An illegal header, such as a key with a line break in it, never gets better.
        case openai.APIConnectionError() if "LocalProtocolError" in repr(error.__cause__):
            return CriticalError(message)
        case openai.APIStatusError(status_code=413):
            return TooLargeError(message)
        case openai.BadRequestError(code="max_tokens_per_request"):
            return TooLargeError(message)
        case openai.BadRequestError() | openai.UnprocessableEntityError():
            return PermanentError(message)
        case _:
            return TransientError(message)


def _retry_after(error: openai.RateLimitError) -> timedelta | None:
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return timedelta(seconds=float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    return None
