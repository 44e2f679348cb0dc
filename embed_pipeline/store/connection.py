"""How a driver is opened, and what its errors mean to a person."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeAlias

from neo4j import (
    AsyncDriver,
    AsyncGraphDatabase,
    AsyncSession,
    Driver as SyncDriver,
    GraphDatabase,
    NotificationMinimumSeverity,
    exceptions as neo4j_errors,
)

from embed_pipeline.domain.errors import (
    ApocMissingError,
    ConfigurationError,
    CredentialsError,
    DatabaseFault,
    EmbedPipelineError,
    InvalidJobError,
    SchemaError,
    UnreachableError,
    plain_fault,
)
from embed_pipeline.domain.neo4j_uri import ALLOWED_URI, holds_credentials, is_neo4j_uri

Driver: TypeAlias = AsyncDriver
"""An open driver, for those who hand it on and need not know the package it comes from."""

CONNECT_SECONDS: Final = 5.0
ACQUIRE_SECONDS: Final = 10.0
ENDED_BY_SERVER: Final = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.ClientError.Transaction.LockClientStopped",
    "Neo.ClientError.Transaction.TransactionTerminated",
)
"""How the codes begin that a client gets for a transaction the server has given up."""
TOO_MUCH: Final = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.TransientError.General.MemoryPoolOutOfMemory",
    "Neo.TransientError.General.OutOfMemory",
    "Neo.TransientError.General.TransactionMemoryLimit",
    "Neo.TransientError.General.TransactionOutOfMemory",
)
"""How the codes begin of a transaction that takes more time or memory than there is for one."""
RETRY_SECONDS: Final = 0.0
"""The driver doubles its pauses and sleeps on when the server is back; the store repeats by itself.
Measured over 24 outages, a transaction went through 1.9 s after the end of one (at most 5.3 s)
where the driver might repeat for 5 s, and after 0.5 s (at most 1.3 s) where it may not."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials of Neo4j."""

    uri: str
    username: str
    password: str = field(repr=False)
    database: str = "neo4j"


_EXPLAINED: Final = (
    neo4j_errors.Neo4jError,
    neo4j_errors.DriverError,
    OSError,
    UnicodeEncodeError,
)


def open_driver(connection: Connection) -> AsyncDriver:
    """Open a driver; nothing is sent before its first use.

    Raises:
        ConfigurationError: the URI cannot be one of Neo4j, or holds a password.
    """
    return AsyncGraphDatabase.driver(connection.uri, **_options(connection))


def open_sync_driver(connection: Connection) -> SyncDriver:
    """The same for callers without an event loop."""
    return GraphDatabase.driver(connection.uri, **_options(connection))


def _options(connection: Connection) -> dict[str, Any]:
    check_uri(connection.uri)
    return {
        "auth": (connection.username, connection.password),
        "user_agent": f"embed-pipeline/{_version()}",
        "connection_timeout": CONNECT_SECONDS,
        "connection_write_timeout": ACQUIRE_SECONDS,
        "connection_acquisition_timeout": ACQUIRE_SECONDS,
        "max_transaction_retry_time": RETRY_SECONDS,
        # A connection cut by a restart of the server is found before it carries a transaction.
        "liveness_check_timeout": 30.0,
        "notifications_min_severity": NotificationMinimumSeverity.OFF,
        "keep_alive": True,
    }


OpenDriver: TypeAlias = Callable[[Connection], AsyncDriver]


@asynccontextmanager
async def connected(
    connection: Connection, opener: OpenDriver = open_driver
) -> AsyncGenerator[AsyncDriver]:
    """Open a driver, make sure at once that Neo4j answers, and explain the driver's errors.

    Raises:
        EmbedPipelineError: says what to do; see ``explain_connection_error``.
    """
    async with opener(connection) as driver:
        try:
            # Else the first transaction would be retried for seconds without a server.
            await driver.verify_connectivity()
            yield driver
        except _EXPLAINED as error:
            raise explain_connection_error(error, connection.uri) from error


def open_session(driver: AsyncDriver, database: str) -> AsyncSession:
    """Open a session; also that of another program's driver gets no hints about labels."""
    return driver.session(
        database=database, notifications_min_severity=NotificationMinimumSeverity.OFF
    )


def check_uri(uri: str) -> None:
    """Refuse URIs that the driver reports badly; it prints a password in a URI."""
    if holds_credentials(uri):
        raise ConfigurationError(
            "NEO4J_URI holds a user or password; put them into NEO4J_USERNAME and NEO4J_PASSWORD"
        )
    if not is_neo4j_uri(uri):
        raise ConfigurationError(f"NEO4J_URI is {uri!r}; use {ALLOWED_URI}")


def explain_connection_error(error: Exception, uri: str) -> EmbedPipelineError:
    """Say what a driver error means and what to do; shows the host, never a secret."""
    where = _address(uri)
    match error:
        case EmbedPipelineError():
            return error
        case neo4j_errors.AuthError() | neo4j_errors.AuthConfigurationError():
            return _explain_credentials(error, where)
        # The driver takes neither for an AuthError.
        case neo4j_errors.Neo4jError(code=code) if code and code.endswith(
            ("CredentialsExpired", "AuthenticationRateLimit")
        ):
            return _explain_credentials(error, where)
        # Before OSError: a TimeoutError is one, too.
        case neo4j_errors.ConnectionAcquisitionTimeoutError() | TimeoutError():
            return UnreachableError(
                f"Neo4j at {where} gave no answer in time; is it overloaded or still starting?"
            )
        case neo4j_errors.ServiceUnavailable() | neo4j_errors.SessionExpired() | OSError():
            return _explain_silence(error, uri, where)
        case UnicodeEncodeError():
            return InvalidJobError(
                "a text holds half a character (a lone surrogate), which Neo4j cannot store; "
                "nothing was done"
            )
        case neo4j_errors.Neo4jError(code=code) if code and "DatabaseNotFound" in code:
            return UnreachableError(
                f"Neo4j at {where} has no such database; check NEO4J_DATABASE "
                "(Community Edition has only 'neo4j')"
            )
        case neo4j_errors.DatabaseUnavailable():
            return UnreachableError(
                f"The database at {where} is not available yet; wait for it or start it"
            )
        case neo4j_errors.ConfigurationError():
            return ConfigurationError(f"The driver refuses the settings for {where}; see NEO4J_URI")
        case neo4j_errors.Forbidden():
            return CredentialsError(
                f"The user is known to Neo4j at {where} but may not do this; grant it the rights"
            )
        case neo4j_errors.Neo4jError(code=code) if code and ".Schema." in code:
            return SchemaError(f"Neo4j at {where} refuses ({code}); run 'embed-pipeline doctor'")
        case neo4j_errors.Neo4jError(code=code):
            return _explain_answer(error, code or "no code", where)
        case _:
            return EmbedPipelineError(f"{type(error).__name__} while talking to Neo4j at {where}")


def fault_of(error: Exception) -> DatabaseFault:
    """Classify an error: wait for the server, ask it for less, or give up."""
    match error:
        case (
            neo4j_errors.ServiceUnavailable()
            | neo4j_errors.SessionExpired()
            | neo4j_errors.DatabaseUnavailable()
            | neo4j_errors.ConnectionAcquisitionTimeoutError()
        ):
            return DatabaseFault.AWAY
        case neo4j_errors.Neo4jError() if isinstance(
            explain_connection_error(error, ""), UnreachableError
        ):
            return DatabaseFault.BUSY
        case _:
            return plain_fault(error)


def _explain_answer(error: neo4j_errors.Neo4jError, code: str, where: str) -> EmbedPipelineError:
    """Explain an error reported by the server, after all retries."""
    kind = code.rpartition(".")[2]
    if code.startswith(ENDED_BY_SERVER) or "MemoryPoolOutOfMemory" in code:
        return UnreachableError(
            f"Neo4j at {where} ended the transaction before it was done ({kind}); it is "
            "overloaded, or a lock is held for long: try again, and look at its load"
        )
    if error.is_retryable():
        return UnreachableError(
            f"Neo4j at {where} is busy and could not do this now ({kind}); try again"
        )
    if ".ProcedureNotFound" in code:
        return ApocMissingError(
            f"Neo4j at {where} lacks a procedure that this needs; is APOC core installed? "
            "'embed-pipeline doctor' says"
        )
    return EmbedPipelineError(
        f"Neo4j at {where} answered with {code}; 'embed-pipeline doctor' looks at everything"
    )


def _explain_credentials(error: Exception, where: str) -> CredentialsError:
    code = getattr(error, "code", None) or ""
    if "AuthenticationRateLimit" in code:
        return CredentialsError(
            f"Neo4j at {where} locks this user out after too many wrong passwords; "
            "wait a few seconds, correct NEO4J_PASSWORD, then try once"
        )
    if "CredentialsExpired" in code:
        return CredentialsError(
            f"Neo4j at {where} wants the initial password to be changed first: "
            "run ALTER CURRENT USER SET PASSWORD in cypher-shell"
        )
    return CredentialsError(
        f"Neo4j at {where} refuses user or password; check NEO4J_USERNAME and NEO4J_PASSWORD"
    )


def _explain_silence(error: Exception, uri: str, where: str) -> UnreachableError:
    scheme = uri.partition("://")[0]
    if scheme.endswith(("+s", "+ssc")) and not _refused(error):
        plain = scheme.partition("+")[0]
        return UnreachableError(
            f"Cannot reach Neo4j at {where} with TLS ({scheme}://); if the server offers none, "
            f"use {plain}:// in NEO4J_URI"
        )
    return UnreachableError(
        f"Cannot reach Neo4j at {where}; is it running, and is NEO4J_URI right? "
        "'embed-pipeline neo4j start' starts the bundled server"
    )


def _refused(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _address(uri: str) -> str:
    """Host and port, without a user and a password in the URI."""
    return uri.partition("://")[2].rpartition("@")[2].partition("/")[0] or "an unknown address"


def _version() -> str:
    try:
        return version("embed-pipeline")
    except PackageNotFoundError:
        return "0"
