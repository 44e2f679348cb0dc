"""What servers that speak OpenAI's protocol take in a request, as data.

None was called; docs/providers.md says what was tried. What a profile says is the most that is
sent, so one that is too careful costs requests, not jobs.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal
from urllib.parse import urlsplit

from embed_pipeline.domain.embedding import RequestLimits

Encoding = Literal["base64", "float"]
OWN_SERVER: Final = "a server of your own"
"""Instead of a list: tokens are free."""
OLLAMA_PORT: Final = 11_434
"""The only port that tells a server: the others are everybody's."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The form of a request that a server accepts."""

    name: str
    inputs: int = 2_048
    tokens: int = 300_000
    tokens_per_input: int = 8_191
    encoding: Encoding = "base64"
    """How vectors are asked for; base64 is 19 times faster to read than numbers."""
    sends_dimensions: bool = True
    type_field: str = ""
    """The field that tells documents from questions, where a server has one."""
    document_type: str = ""
    question_type: str = ""
    prices: str = ""
    """Whose list of prices holds; if empty that of the address, or of OpenAI."""
    hosts: tuple[str, ...] = ()
    """How the names of its hosts end."""
    convention: str = ""
    """Its name in OpenTelemetry's conventions, where that is another one."""

    @property
    def traced_as(self) -> str:
        """What spans call the provider."""
        return self.convention or self.name

    def limits(self, dimensions: int) -> RequestLimits:
        """How much one request may hold, of vectors of this length."""
        most = RequestLimits.for_dimensions(dimensions)
        return replace(
            most,
            inputs=min(most.inputs, self.inputs),
            tokens=min(most.tokens, self.tokens),
            tokens_per_input=min(self.tokens_per_input, self.tokens),
        )

    def type_for(self, *, is_question: bool) -> dict[str, str]:
        """The request field that names the type of its texts; empty for most servers."""
        said = self.question_type if is_question else self.document_type
        return {self.type_field: said} if self.type_field and said else {}


OPENAI: Final = Profile("openai", prices="openai", hosts=("api.openai.com",))
PROFILES: Final = {
    profile.name: profile
    for profile in (
        OPENAI,
        Profile(
            "azure",
            prices="azure",
            hosts=(".openai.azure.com", ".services.ai.azure.com"),
            convention="azure.ai.openai",
        ),
        Profile(
            "ollama",
            prices=OWN_SERVER,
            inputs=256,
            tokens_per_input=2_048,
            encoding="float",
            sends_dimensions=False,
        ),
        Profile("vllm", prices=OWN_SERVER, inputs=512, sends_dimensions=False),
        Profile(
            "tei",
            prices=OWN_SERVER,
            inputs=32,
            tokens=16_384,
            tokens_per_input=512,
            sends_dimensions=False,
        ),
        Profile(
            "llama.cpp",
            prices=OWN_SERVER,
            inputs=64,
            tokens_per_input=512,
            encoding="float",
            sends_dimensions=False,
        ),
        Profile(
            "gemini",
            prices="google",
            inputs=100,
            tokens=20_000,
            tokens_per_input=2_048,
            encoding="float",
            hosts=("generativelanguage.googleapis.com",),
            convention="gcp.gemini",
        ),
        Profile(
            "mistral",
            prices="mistral",
            inputs=128,
            tokens=16_384,
            encoding="float",
            sends_dimensions=False,
            hosts=("api.mistral.ai",),
            convention="mistral_ai",
        ),
        Profile(
            "voyage",
            prices="voyageai",
            inputs=1_000,
            tokens=120_000,
            sends_dimensions=False,
            type_field="input_type",
            document_type="document",
            question_type="query",
            hosts=("api.voyageai.com",),
        ),
        Profile(
            "together",
            prices="together",
            inputs=128,
            tokens_per_input=512,
            encoding="float",
            sends_dimensions=False,
            hosts=("api.together.xyz", "api.together.ai"),
        ),
        Profile(
            "openrouter",
            prices="openrouter",
            inputs=256,
            encoding="float",
            hosts=("openrouter.ai",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a server was found to take that no profile knows."""

    server: str
    """Its address and the model: what is true of them is true of no other."""
    inputs: int
    tokens: int
    """Of one text."""
    encoding: Encoding
    sends_dimensions: bool
    at: datetime

    def __str__(self) -> str:
        dimensions = "with" if self.sends_dimensions else "without"
        return (
            f"takes {self.inputs} texts in a request, about {self.tokens} tokens of a text, "
            f"{self.encoding}, {dimensions} 'dimensions'"
        )


def profile_by_address(base_url: str | None) -> Profile | None:
    """The profile of a server by its address, if one is known."""
    if base_url is None:
        return OPENAI
    address = urlsplit(base_url)
    host = address.hostname or ""
    by_host = (profile for profile in PROFILES.values() if host.endswith(profile.hosts or ("/",)))
    return next(by_host, PROFILES["ollama"] if address.port == OLLAMA_PORT else None)
