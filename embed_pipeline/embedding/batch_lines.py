"""What one line of a batch's answer means for its job."""

import json
import re
from typing import Any, Final

from embed_pipeline.domain.batch import GIVEN_UP, BatchAnswer
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    TransientError,
)
from embed_pipeline.embedding.answers import AnswerReader
from embed_pipeline.embedding.openai import OUT_OF_MONEY, advice_on

_CODE: Final = re.compile(r"[a-z0-9_]{1,60}\Z")
_FILL_IT: Final = "fill the account or raise its limit"


def read_line(line: str, *, dimensions: int, sends_dimensions: bool) -> BatchAnswer:
    """Read one line of an output or error file.

    Only codes are kept of what the provider says: its words may quote the text.
    """
    found = json.loads(line)
    name, error = str(found["custom_id"]), found.get("error")
    status, body = None, found
    if not error:
        status, body = found["response"]["status_code"], found["response"]["body"]
    if status == 200:
        return _embedded(name, body, dimensions)
    codes = _codes(body)
    if status is None and GIVEN_UP & set(codes):
        return BatchAnswer(name, is_untried=True)
    refusal = " ".join([*([str(status)] if status else []), *codes]) or "no code"
    meaning = _meaning_of(status, codes, refusal)
    if isinstance(meaning, PermanentError):
        meaning.advice = advice_on(_parameter(body), sends_dimensions=sends_dimensions)
    return BatchAnswer(name, error=meaning, is_untried=meaning is None, refusal=refusal)


def _meaning_of(status: int | None, codes: list[str], refusal: str) -> EmbeddingError | None:
    """As for an ordinary request; None if the provider could not do it, which is nobody's fault."""
    said = f"the provider refused the text in a batch: {refusal}"
    if OUT_OF_MONEY & set(codes):
        return CriticalError(f"{said}; {_FILL_IT}")
    match status:
        case None:
            return TransientError(f"no answer in the batch: {refusal}")
        case 401 | 403:
            return CriticalError(f"{said}; check OPENAI_API_KEY and what it may do")
        case 404:
            return CriticalError(f"{said}; check EMBEDDING_MODEL and OPENAI_BASE_URL")
        case 400 | 413 | 422:
            return PermanentError(said)
        case 429:
            return None
        case _ if status >= 500:
            return None
        case _:
            return TransientError(said)


def _embedded(name: str, body: Any, dimensions: int) -> BatchAnswer:
    reader = AnswerReader(inputs=1, dimensions=dimensions)
    try:
        reader.feed(json.dumps(body).encode())
        [vector], tokens = reader.finish()
    except Exception as stumbled:
        unreadable = f"the provider's answer is unreadable ({type(stumbled).__name__})"
        return BatchAnswer(name, error=TransientError(unreadable))
    return BatchAnswer(name, vector, tokens)


def _error_in(body: Any) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _codes(body: Any) -> list[str]:
    error = _error_in(body)
    said = [error.get("type"), error.get("code")]
    return [word for word in said if isinstance(word, str) and _CODE.match(word)]


def _parameter(body: Any) -> str:
    return str(_error_in(body).get("param"))
