"""The client for OpenAI's protocol, as requests and batches use it."""

from datetime import timedelta

import httpx2
import openai

from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.profiles import Profile

_ONE_LENGTH = frozenset({"text-embedding-ada-002"})
"""Models that refuse ``dimensions``: theirs is the only length they have."""


def open_client(
    *,
    model: str,
    api_key: str,
    base_url: str | None,
    timeout: timedelta,
    http_client: httpx2.AsyncClient,
) -> openai.AsyncOpenAI:
    """A client that repeats nothing: a second request is charged, a second batch in full.

    Raises:
        ConfigurationError: there is no key.
    """
    if not api_key:
        raise ConfigurationError(
            f"OPENAI_API_KEY is not set, but {model} needs one; set it (any text for a server "
            "that asks for none). 'embed-pipeline cutover status' says which model is live"
        )
    return openai.AsyncOpenAI(
        api_key=api_key,
        base_url=base_url,
        timeout=timeout.total_seconds(),
        max_retries=0,
        http_client=http_client,
    )


def sends_dimensions(profile: Profile, model: str) -> bool:
    """Whether requests name the length of the vectors."""
    return profile.sends_dimensions and model not in _ONE_LENGTH
