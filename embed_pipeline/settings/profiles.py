"""The settings about what the provider's server takes in a request."""

from dataclasses import replace
from typing import Any, Final, Literal, Self

from embed_pipeline.domain.entity import LONGEST_PREFIX, SENT_AS, TYPE_NAME
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


TYPES: Final = ("EMBEDDING_TYPE_FIELD", "EMBEDDING_DOCUMENT_TYPE", "EMBEDDING_QUESTION_TYPE")
OPTIONAL_TYPE: Final = f"^({TYPE_NAME})?$"
ALLOWED_TYPE: Final = "a letter, then letters, digits or _ . : - (at most 64)"
ALLOWED_FIELD: Final = f"{ALLOWED_TYPE}, and no field that every request has"
OF_EVERY_REQUEST: Final = frozenset({"model", "input", "dimensions", "encoding_format"})
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

    type_field: str = setting(
        "EMBEDDING_TYPE_FIELD",
        "Field of a request that tells documents from questions, where the server has one, as"
        " 'input_type'; if empty as the profile says.",
        ALLOWED_FIELD,
        "",
        pattern=OPTIONAL_TYPE,
    )
    document_type: str = setting(
        "EMBEDDING_DOCUMENT_TYPE",
        "Value of EMBEDDING_TYPE_FIELD for documents; another one makes every vector anew. If empty"
        " as the profile says.",
        ALLOWED_TYPE,
        "",
        pattern=OPTIONAL_TYPE,
    )
    question_type: str = setting(
        "EMBEDDING_QUESTION_TYPE",
        "Value of EMBEDDING_TYPE_FIELD for questions; if empty as the profile says.",
        ALLOWED_TYPE,
        "",
        pattern=OPTIONAL_TYPE,
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
            "type_field": self.type_field or None,
            "document_type": self.document_type or None,
            "question_type": self.question_type or None,
        }
        return replace(profile, **{name: value for name, value in own.items() if value is not None})

    @property
    def sent_as(self) -> str:
        """The type of documents that is set; empty for that of the profile, which needs no name."""
        said = self.profile.type_for(is_question=False)
        if self.provider is not Provider.OPENAI or said == (self.known_profile or OPENAI).type_for(
            is_question=False
        ):
            return ""
        return "".join(f"{field}={value}" for field, value in said.items())

    @property
    def type_problem(self) -> str | None:
        """What is wrong with the types of requests, if anything is."""
        if self.type_field in OF_EVERY_REQUEST:
            return f"EMBEDDING_TYPE_FIELD is {self.type_field!r}; it must be {ALLOWED_FIELD}."
        if (self.document_type or self.question_type) and not self.profile.type_field:
            return (
                "EMBEDDING_DOCUMENT_TYPE and EMBEDDING_QUESTION_TYPE are values of "
                "EMBEDDING_TYPE_FIELD, which is not set; set it to the server's field, as "
                "input_type."
            )
        return None


def type_settings(sent_as: str) -> dict[str, str]:
    """The variables that say the type of documents as a shape does; without one there are none."""
    if not (found := SENT_AS.fullmatch(sent_as)):
        return dict.fromkeys(TYPES, "")
    return {"EMBEDDING_TYPE_FIELD": found[1], "EMBEDDING_DOCUMENT_TYPE": found[2]}
