"""The settings of the queue: variable, purpose and bounds of each, and the values in effect.

Read them with ``load_settings``, which reports all problems at once.
"""

from datetime import timedelta
from typing import Final, Literal

from pydantic_settings import BaseSettings, SettingsConfigDict

from embed_pipeline.domain.job import LONGEST_LEASE
from embed_pipeline.domain.models import DEFAULT_MODELS, MOCK_PREFIX, MODELS, Provider
from embed_pipeline.domain.neo4j_uri import ALLOWED_URI
from embed_pipeline.domain.queue_name import ALLOWED_QUEUE, DEFAULT_QUEUE, QUEUE_NAME
from embed_pipeline.domain.vector import MOST_DIMENSIONS
from embed_pipeline.paths import bundled_server
from embed_pipeline.settings.types import (
    DAY,
    MILLISECOND,
    PROVIDERS,
    ApiKey,
    Milliseconds,
    Neo4jUri,
    ProviderUrl,
    Secret,
    WholeNumber,
    setting,
)

PRESETS: Final = {
    "development": (timedelta(seconds=10), timedelta(seconds=60)),
    "production": (timedelta(seconds=30), timedelta(seconds=300)),
    "high-reliability": (timedelta(seconds=15), timedelta(seconds=180)),
}
"""Heartbeat interval and lease by name."""

DEFAULT_LEASE: Final = timedelta(seconds=300)
DEFAULT_DIMENSIONS: Final = 1536
DEFAULT_ACCOUNT: Final = "default"


class QueueSettings(BaseSettings):
    """The settings as read; the properties below are the values in effect."""

    model_config = SettingsConfigDict(
        case_sensitive=True,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        # Only the last class of the line is ever made: the others need no validator of their own.
        defer_build=True,
    )

    own_neo4j_uri: Neo4jUri | None = setting(
        "NEO4J_URI", "Address of Neo4j; empty uses the bundled local server.", ALLOWED_URI
    )
    neo4j_username: str = setting(
        "NEO4J_USERNAME",
        "User in Neo4j.",
        "a user name of at most 128 characters, without spaces around it",
        "neo4j",
        pattern=r"^[^\s\x00-\x1f](?:[^\x00-\x1f]{0,126}[^\s\x00-\x1f])?$",
    )
    own_neo4j_password: Secret | None = setting(
        "NEO4J_PASSWORD", "Password in Neo4j; the bundled server has its own.", "a password"
    )
    neo4j_database: str = setting(
        "NEO4J_DATABASE",
        "Database that holds entities and jobs.",
        "3 to 63 letters, digits, dots and dashes, starting with a letter",
        "neo4j",
        pattern=r"^[A-Za-z][A-Za-z0-9.\-]{2,62}$",
    )
    allow_plaintext_bolt: Literal["true", "false"] = setting(
        "EMBED_ALLOW_PLAINTEXT_BOLT",
        "Lets NEO4J_URI name another machine without TLS; what is sent can be read.",
        "true or false",
        "false",
    )

    openai_api_key: ApiKey | None = setting(
        "OPENAI_API_KEY",
        "Key for OpenAI; without one, 'auto' makes mock vectors.",
        "a key of ASCII characters without spaces",
    )
    openai_base_url: ProviderUrl | None = setting(
        "OPENAI_BASE_URL",
        "Another server that speaks OpenAI's protocol; empty is OpenAI itself.",
        "an https:// address, or http:// on this machine, without user, password and question mark",
    )
    embedding_provider: str = setting(
        "EMBEDDING_PROVIDER",
        "Who makes the vectors; auto is openai with a key and mock without. python:module:Class is"
        " a class of yours.",
        "auto, openai, local, local-fast, mock or python:package.module:Class",
        "auto",
        pattern=PROVIDERS,
    )
    chosen_model: str | None = setting(
        "EMBEDDING_MODEL",
        "Embedding model; if empty text-embedding-3-small, or what the local provider has.",
        "the name of a model, at most 128 ASCII characters without spaces",
        pattern=r"^[!-~]{1,128}$",
    )
    chosen_dimensions: WholeNumber | None = setting(
        "EMBEDDING_DIMENSIONS",
        "Length of a vector; if empty the model's own, 1536 for text-embedding-3-small.",
        f"a whole number from 1 to {MOST_DIMENSIONS}, the most a vector index takes",
        ge=1,
        le=MOST_DIMENSIONS,
    )
    send_dimensions: Literal["true", "false"] | None = setting(
        "EMBEDDING_SEND_DIMENSIONS",
        "Whether requests name the length; if empty as the profile says, true for OpenAI.",
        "true or false",
    )
    rate_limit_requests: WholeNumber = setting(
        "EMBEDDING_RATE_LIMIT_TOKENS",
        "Requests to the provider per interval, over all workers together; a model on this machine"
        " is limited only if this is set.",
        "a whole number from 1; to stop all requests, pause the queue",
        20,
        ge=1,
        le=1_000_000,
    )
    rate_limit_interval: Milliseconds = setting(
        "EMBEDDING_RATE_LIMIT_INTERVAL",
        "Interval of the rate limit in milliseconds.",
        "milliseconds, from 1 to 86400000 (a day)",
        timedelta(minutes=1),
        ge=MILLISECOND,
        le=DAY,
    )
    tokens_per_minute: WholeNumber | None = setting(
        "EMBEDDING_TOKENS_PER_MINUTE",
        "Tokens per minute, over all workers together; no limit if empty.",
        "a whole number from 1 to 10000000000",
        ge=1,
        le=10_000_000_000,
    )
    chosen_rate_limit_name: str | None = setting(
        "EMBEDDING_RATE_LIMIT_NAME",
        "The account that the limit belongs to; queues with the same name share it. If empty"
        " default, or the provider if that is this machine.",
        "up to 64 letters, digits, dots, dashes and _",
        pattern=r"^[A-Za-z0-9._\-]{1,64}$",
    )

    queue: str = setting(
        "EMBED_QUEUE",
        "The queue in the database that everything is about; several live side by side.",
        ALLOWED_QUEUE,
        DEFAULT_QUEUE,
        pattern=f"^{QUEUE_NAME}$",
    )
    retention_days: WholeNumber = setting(
        "EMBED_JOB_RETENTION_DAYS",
        "Days after which finished jobs are deleted. Required.",
        "a whole number of days from 7 to 30",
        ...,
        ge=7,
        le=30,
    )
    recovery_interval: Milliseconds = setting(
        "EMBED_JOB_RECOVERY_INTERVAL",
        "Milliseconds between two recoveries of expired leases; 0 turns recovery off.",
        "0 (off) or milliseconds up to 86400000 (a day)",
        timedelta(minutes=1),
        ge=timedelta(0),
        le=DAY,
    )
    recovery_grace: Milliseconds = setting(
        "EMBED_JOB_RECOVERY_GRACE_MS",
        "Milliseconds that recovery waits after a lease has expired.",
        "milliseconds from 0 to 86400000 (a day)",
        timedelta(0),
        ge=timedelta(0),
        le=DAY,
    )
    preset: Literal["development", "production", "high-reliability"] | None = setting(
        "EMBED_JOB_PRESET",
        "Heartbeat and lease by name; the two variables below win over it.",
        ", ".join(PRESETS),
    )
    own_lease: Milliseconds | None = setting(
        "EMBED_JOB_LOCK_DURATION_MS",
        "Milliseconds that a lease lasts without a heartbeat (300000 if empty).",
        "milliseconds from 1000 to 3600000 (an hour)",
        ge=timedelta(seconds=1),
        le=LONGEST_LEASE,
    )
    own_heartbeat: Milliseconds | None = setting(
        "EMBED_JOB_HEARTBEAT_INTERVAL_MS",
        "Milliseconds between two heartbeats (a third of the lease if empty).",
        "milliseconds from 100 up to half of the lease",
        ge=timedelta(milliseconds=100),
        le=DAY,
    )
    job_timeout: Milliseconds = setting(
        "EMBED_JOB_TIMEOUT_MS",
        "Milliseconds that the work on one job may take, however alive its worker is.",
        "milliseconds from 1000 to 86400000 (a day)",
        timedelta(minutes=10),
        ge=timedelta(seconds=1),
        le=DAY,
    )
    chosen_max_attempts: WholeNumber | None = setting(
        "EMBED_JOB_MAX_ATTEMPTS",
        "Times a job is tried before it fails for good (3 if empty).",
        "a whole number from 1 to 100",
        ge=1,
        le=100,
    )
    chosen_max_retries: WholeNumber | None = setting(
        "EMBED_JOB_MAX_RETRIES",
        "Another name for EMBED_JOB_MAX_ATTEMPTS.",
        "a whole number from 1 to 100",
        ge=1,
        le=100,
    )

    @property
    def uses_bundled_server(self) -> bool:
        """Say whether Neo4j is the bundled one, because nothing else was asked for."""
        return self.own_neo4j_uri is None and self.own_neo4j_password is None

    @property
    def neo4j_uri(self) -> str:
        """Address of Neo4j."""
        return self.own_neo4j_uri or bundled_server().get("uri", "bolt://127.0.0.1:7687")

    @property
    def neo4j_password(self) -> str:
        """Password in Neo4j; empty where neither the user nor a bundled server has one."""
        if self.own_neo4j_password is not None:
            return self.own_neo4j_password.get_secret_value()
        return bundled_server().get("password", "") if self.uses_bundled_server else ""

    @property
    def provider(self) -> Provider:
        """Who makes the vectors."""
        if self.embedding_provider == "auto":
            return Provider.OPENAI if self.openai_api_key else Provider.MOCK
        return Provider(self.embedding_provider.partition(":")[0])

    @property
    def provider_name(self) -> str:
        """The full name: for one of the user's it includes the class."""
        return self.embedding_provider if self.provider is Provider.OWN else self.provider.value

    @property
    def model(self) -> str:
        """Name of the model, as it stands on jobs; mock models say that they are."""
        if self.provider is Provider.MOCK:
            return MOCK_PREFIX + (self.chosen_model or DEFAULT_MODELS[Provider.OPENAI])
        return self.chosen_model or DEFAULT_MODELS.get(self.provider, "")

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        if self.chosen_dimensions is not None:
            return self.chosen_dimensions
        known = MODELS.get(self.model.removeprefix(MOCK_PREFIX))
        return known.dimensions if known else DEFAULT_DIMENSIONS

    @property
    def is_rate_limited(self) -> bool:
        """Whether the rate limit applies; a model on this machine has none."""
        return not self.provider.runs_here or "rate_limit_requests" in self.model_fields_set

    @property
    def rate_limit_name(self) -> str:
        """The account whose limit is shared; a local model has its own name."""
        here = self.provider.value if self.provider.runs_here else DEFAULT_ACCOUNT
        return self.chosen_rate_limit_name or here

    @property
    def lease(self) -> timedelta:
        """How long a lease lasts without a heartbeat."""
        if self.own_lease is not None:
            return self.own_lease
        return PRESETS[self.preset][1] if self.preset else DEFAULT_LEASE

    @property
    def heartbeat(self) -> timedelta:
        """Time between two heartbeats."""
        if self.own_heartbeat is not None:
            return self.own_heartbeat
        return PRESETS[self.preset][0] if self.preset else self.lease / 3

    @property
    def max_attempts(self) -> int:
        """Times a job is tried before it fails for good."""
        return self.chosen_max_attempts or self.chosen_max_retries or 3
