"""OpenAI, and every server that speaks its protocol."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import openai
from openai.types import CreateEmbeddingResponse

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    RateLimitedError,
    TooLargeError,
    TransientError,
)
from embed_pipeline.domain.redact import said_by_provider
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
            # A redirect would carry texts to wherever it leads; the settings allow no such place.
            http_client=openai.DefaultAsyncHttpx2Client(follow_redirects=False),
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
            return Embedded(_vectors_of(answer), _tokens_of(answer, texts))
        except openai.APIError as error:
            said = said_by_provider(
                error.message, texts=[text.text for text in texts], secret=self._api_key
            )
            # Without its cause: that holds the whole answer, and with it perhaps the texts.
            raise classify(error, said) from None
        except Exception as error:
            # HTML, truncated or endlessly nested JSON, numbers of 400 digits: the client stumbles
            # over each in its own way, in an answer that says 200.
            raise TransientError(
                f"the provider's answer is unreadable ({type(error).__name__})"
            ) from None

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    def _requested_dimensions(self) -> int | openai.Omit:
        # Older models refuse the parameter; theirs is the only length they have.
        return openai.omit if self.model == "text-embedding-ada-002" else self.dimensions


def _vectors_of(answer: CreateEmbeddingResponse) -> list[Sequence[float]]:
    """The vectors in the order of the texts.

    Raises:
        ValueError: nobody could say which vector is whose, or one is no list of numbers.
    """
    items = sorted(answer.data, key=lambda item: item.index)
    if [item.index for item in items] != list(range(len(items))):
        raise ValueError("an index is missing or there twice")
    if not all(isinstance(item.embedding, list) for item in items):
        raise ValueError("an embedding is no list")
    return [item.embedding for item in items]


def _tokens_of(answer: CreateEmbeddingResponse, texts: Sequence[PreparedText]) -> int:
    """What the provider charges for; counted here where it does not say."""
    said = getattr(getattr(answer, "usage", None), "total_tokens", None)
    if isinstance(said, int) and said >= 0:
        return said
    return sum(text.tokens for text in texts)


def classify(error: openai.APIError, said: str) -> EmbeddingError:
    """Say what a provider's error means for the queue; the only place that knows.

    Args:
        error: what the client raised.
        said: its message, as it may be shown.
    """
    message = f"{type(error).__name__}: {said}"
    match error:
        # OpenAI reports an empty account as 429 too, and waiting will not fill it.
        case openai.RateLimitError(code="insufficient_quota"):
            return CriticalError(message)
        case openai.RateLimitError() if "request too large" in error.message.lower():
            return TooLargeError(message)
        case openai.RateLimitError():
            return RateLimitedError(message, retry_after=_retry_after(error))
        case openai.AuthenticationError() | openai.PermissionDeniedError() | openai.NotFoundError():
            return CriticalError(message)
        # An illegal header, such as a key with a line break in it, never gets better.
        case openai.APIConnectionError() if "LocalProtocolError" in repr(error.__cause__):
            return CriticalError(message)
        case openai.APIStatusError(status_code=status) if 300 <= status < 400:
            return CriticalError(
                f"the provider answers with a redirect ({status}), which is not followed; set "
                "OPENAI_BASE_URL to the address it leads to"
            )
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
