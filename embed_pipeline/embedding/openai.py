"""OpenAI, and every server that speaks its protocol."""

import os
import socket
import ssl
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import openai

from embed_pipeline.domain.embedding import Embedded, PreparedText
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    RateLimitedError,
    Refusal,
    TooLargeError,
    TransientError,
)
from embed_pipeline.domain.profiles import OPENAI, Encoding, Profile
from embed_pipeline.domain.redact import MAX_MESSAGE, said_by_provider, words_beside
from embed_pipeline.embedding.answers import AnswerReader, BoundedClient, OversizedAnswerError
from embed_pipeline.embedding.client import open_client, sends_dimensions
from embed_pipeline.embedding.rate_headers import allowance_of
from embed_pipeline.embedding.retry_after import retry_after
from embed_pipeline.embedding.tokens import prepare

REQUEST_TIMEOUT: Final = timedelta(seconds=60)
"""The client's own default of 600 s is twice as long as a lease."""
REFUSED_DIMENSIONS: Final = (
    "set EMBEDDING_SEND_DIMENSIONS=false to leave 'dimensions' out of the request, or "
    "EMBEDDING_DIMENSIONS to a length that the model makes"
)
REFUSED_OTHERWISE: Final = "check OPENAI_BASE_URL, EMBEDDING_MODEL and EMBEDDING_DIMENSIONS"
"""What to do when a provider refuses whatever it is asked."""
OUT_OF_MONEY: Final = frozenset(
    {
        "insufficient_quota",
        "project_spend_limit_exceeded",
        "organization_spend_limit_exceeded",
        "billing_hard_limit_reached",
    }
)
"""Codes of an account that is empty or at its limit, whatever the status: waiting will not fill it.
"""


class OpenAIEmbedder:
    """One API call per batch; never retries by itself.

    Retrying is the queue's work: it survives a crash, counts attempts and lets another worker
    take over. A second retry loop in here would hide all three.
    """

    def __init__(
        self,
        *,
        model: str,
        dimensions: int,
        api_key: str,
        base_url: str | None = None,
        profile: Profile = OPENAI,
        for_questions: bool = False,
    ) -> None:
        """Nothing is sent before ``embed``.

        Args:
            model: the provider's name for it.
            dimensions: the length of every vector.
            api_key: sent with every request, and masked in every message.
            base_url: another server than OpenAI's.
            profile: what the server takes in a request.
            for_questions: what is sent are questions, where the server wants to know.
        """
        self.model = model
        self.dimensions = dimensions
        self.limits = profile.limits(dimensions)
        self._sends_dimensions = sends_dimensions(profile, model)
        self._encoding: Encoding = profile.encoding
        self._type = profile.type_for(is_question=for_questions)
        self._api_key = api_key
        self._client = open_client(
            model=model,
            api_key=api_key,
            base_url=base_url,
            timeout=REQUEST_TIMEOUT,
            # A redirect would carry texts to wherever it leads; the settings allow no such place.
            http_client=BoundedClient(
                follow_redirects=False, limits=openai.DEFAULT_CONNECTION_LIMITS
            ),
        )

    def prepare(self, text: str) -> PreparedText:
        """Count the tokens of a text, and split it if it is too long for the model."""
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Embed all texts in one request, in their order.

        Raises:
            EmbeddingError: what the provider's answer means for the queue.
        """
        sent = [text.sent for text in texts]
        reader = AnswerReader(inputs=len(texts), dimensions=self.dimensions)
        try:
            async with self._client.embeddings.with_streaming_response.create(
                model=self.model,
                input=sent,
                dimensions=self.dimensions if self._sends_dimensions else openai.omit,
                # Who does not know base64 sends numbers, or refuses it.
                encoding_format=self._encoding,
                extra_body=self._type,
            ) as answer:
                left = allowance_of(answer.headers)
                async for piece in answer.iter_bytes():
                    reader.feed(piece)
            vectors, said = reader.finish()
            return Embedded(vectors, _charged(said, texts), left)
        except Exception as error:
            meaning = self._meaning_of(error, sent)
        # Raised out here, where it gets no context: that would hold answer and request, and with
        # them the key and the texts.
        raise meaning

    def _meaning_of(self, error: Exception, sent: Sequence[str]) -> EmbeddingError:
        """Classify an error; never raises, whatever the answer was."""
        try:
            if isinstance(error, OversizedAnswerError):
                return TransientError(str(error))
            if isinstance(error, openai.APIError):
                said = said_by_provider(_message_of(error), texts=sent, secret=self._api_key)
                meaning = classify(error, said)
                if isinstance(meaning, PermanentError):
                    meaning.refusal = _refusal(error, sent)
                    about = f"{error.param} {_message_of(error)}"
                    meaning.advice = advice_on(about, sends_dimensions=self._sends_dimensions)
                return meaning
        except Exception as stumbled:
            error = stumbled
        # HTML, truncated or endlessly nested JSON, numbers of 400 digits: the client stumbles
        # over each in its own way, in an answer that says 200.
        return TransientError(f"the provider's answer is unreadable ({type(error).__name__})")

    async def close(self) -> None:
        await self._client.close()


def advice_on(refusal: str, *, sends_dimensions: bool) -> str:
    """What to set where a provider refuses whatever it is asked."""
    is_about_length = sends_dimensions and "dimension" in refusal.casefold()
    return REFUSED_DIMENSIONS if is_about_length else REFUSED_OTHERWISE


def _charged(said: int | None, texts: Sequence[PreparedText]) -> int:
    """The tokens charged; counted here if the answer has no plausible number."""
    # No tokenizer makes more tokens than bytes, and a few to begin and end a text with.
    most = sum(4 * len(text.sent) + 16 for text in texts)
    return said if said is not None and said <= most else sum(text.tokens for text in texts)


def classify(error: openai.APIError, said: str) -> EmbeddingError:
    """Map a provider's error to its meaning for the queue; the only place that knows.

    Args:
        error: what the client raised.
        said: its message, as it may be shown.
    """
    message = f"{type(error).__name__}: {said}{_why_unreachable(error)}"
    match error:
        # First: OpenAI reports most of them as 429, which otherwise means to wait.
        case openai.APIStatusError() if OUT_OF_MONEY & {str(error.code), str(error.type)}:
            return CriticalError(message)
        case openai.RateLimitError() if "request too large" in error.message.lower():
            return TooLargeError(message)
        case openai.RateLimitError():
            return RateLimitedError(message, retry_after=retry_after(error.response.headers))
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


def _why_unreachable(error: openai.APIError) -> str:
    """Where the connection was to lead, and what the system says; the client says neither."""
    if not isinstance(error, openai.APIConnectionError):
        return ""
    chain: BaseException | None = error
    reason = None
    while chain is not None:
        if isinstance(chain, OSError):
            reason = _of_the_system(chain) or reason
        chain = chain.__cause__ or chain.__context__
    # Host and port only: an address may hold a password.
    address = error.request.url.netloc.decode("ascii", "replace")
    return f" {reason}: {address}" if reason else ""


def _of_the_system(error: OSError) -> str | None:
    match error:
        case ssl.SSLCertVerificationError():
            return f"certificate refused, {error.verify_message}"
        case ssl.SSLError():
            return f"no TLS, {error.reason}"
        case socket.gaierror():
            return error.strerror
        case _:
            return os.strerror(error.errno) if error.errno else None


def _message_of(error: openai.APIError) -> str:
    """The provider's message, also when it is not in OpenAI's form.

    The client then leaves everything out but the status.
    """
    status = getattr(error, "status_code", None)
    if error.body is None or error.message != f"Error code: {status}":
        return error.message
    return f"{error.message} - {error.body}"


def _refusal(error: openai.APIError, sent: Sequence[str]) -> Refusal:
    status = getattr(error, "status_code", None)
    # A hostile answer has no end, and quotes the texts in unexpected places.
    said = (_message_of(error), str(error.code or ""), str(error.param or ""))
    words = words_beside(sent, " ".join(part[: 4 * MAX_MESSAGE] for part in said))
    return Refusal(f"{status} {error.code is None} {error.param is None}", words)
