"""The settings about what the provider's server takes in a request."""

from dataclasses import replace
from typing import Any, Final, Literal, Self

from embed_pipeline.domain.entity import LONGEST_PREFIX
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.profiles import (
    OPENAI,
    PROFILES,
    Encoding,
    Learnt,
    Profile,
    profile_by_address,
)
from embed_pipeline.settings.fields import QueueSettings
from embed_pipeline.settings.types import WholeNumber, setting

ProfileName = Literal[
    "openai",
    "azure",
    "ollama",
    "vllm",
    "tei",
    "llama.cpp",
    "gemini",
    "mistral",
    "voyage",
    "together",
    "openrouter",
]


OF_REQUESTS: Final = ("max_inputs", "max_tokens", "encoding", "send_dimensions")
"""What can be set, or found out, about the requests to a server."""


class ProfileSettings(QueueSettings):
    """The queue's settings, and the form of requests to the provider."""

    chosen_profile: ProfileName | None = setting(
        "EMBEDDING_PROFILE",
        "What the server of OPENAI_BASE_URL takes in a request; if empty by its address, else as"
        " OpenAI. The variables below win over it.",
        ", ".join(PROFILES),
    )
    max_inputs: WholeNumber | None = setting(
        "EMBEDDING_MAX_INPUTS",
        "Texts in one request, at most; if empty as the profile says.",
        "a whole number from 1 to 2048",
        ge=1,
        le=2_048,
    )
    max_tokens: WholeNumber | None = setting(
        "EMBEDDING_MAX_TOKENS",
        "Tokens of one text, at most, what is longer is sent in pieces; if empty as the profile"
        " says.",
        "a whole number from 64 to 8191",
        ge=64,
        le=8_191,
    )
    max_request_tokens: WholeNumber | None = setting(
        "EMBEDDING_MAX_REQUEST_TOKENS",
        "Tokens of all texts in one request, at most; if empty as the profile says.",
        "a whole number from 64 to 300000",
        ge=64,
        le=300_000,
    )
    encoding: Encoding | None = setting(
        "EMBEDDING_ENCODING",
        "How vectors are asked for; if empty as the profile says, base64 for OpenAI.",
        "base64 or float",
    )
    document_prefix: str = setting(
        "EMBEDDING_DOCUMENT_PREFIX",
        "Text before every text that is embedded, and before each piece of a long one, as in"
        " 'search_document: '; another one makes every vector anew.",
        f"at most {LONGEST_PREFIX} characters",
        "",
        max_length=LONGEST_PREFIX,
    )
    question_prefix: str = setting(
        "EMBEDDING_QUESTION_PREFIX",
        "Text before every question that is searched for, as in 'search_query: '.",
        f"at most {LONGEST_PREFIX} characters",
        "",
        max_length=LONGEST_PREFIX,
    )

    @property
    def known_profile(self) -> Profile | None:
        """The profile that is set, or that of the address."""
        chosen = self.chosen_profile
        return PROFILES[chosen] if chosen else profile_by_address(self.openai_base_url)

    @property
    def unknown_server(self) -> str | None:
        """The server and model of which no profile tells what they take, if that is so."""
        if self.provider is not Provider.OPENAI or self.known_profile is not None:
            return None
        return f"{self.openai_base_url} {self.model} {self.dimensions}"

    @property
    def is_all_set(self) -> bool:
        """Whether there is nothing about requests that could be found out."""
        return all(getattr(self, name) is not None for name in OF_REQUESTS)

    def keeping_to(self, learnt: Learnt) -> Self:
        """These settings with what was found out; what is set wins over it."""
        found = {
            "max_inputs": learnt.inputs,
            "max_tokens": learnt.tokens,
            "encoding": learnt.encoding,
            "send_dimensions": "true" if learnt.sends_dimensions else "false",
        }
        new = {name: value for name, value in found.items() if getattr(self, name) is None}
        return self.model_copy(update=new)

    @property
    def profile(self) -> Profile:
        """The server's profile, overridden by the settings."""
        profile = self.known_profile or OPENAI
        own: dict[str, Any] = {
            "inputs": self.max_inputs,
            "tokens": self.max_request_tokens,
            "tokens_per_input": self.max_tokens,
            "encoding": self.encoding,
            "sends_dimensions": self.send_dimensions and self.send_dimensions == "true",
        }
        return replace(profile, **{name: value for name, value in own.items() if value is not None})
