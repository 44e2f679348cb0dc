"""What an error of the driver means for a drain: wait, ask for less, or give up."""

import pytest
from neo4j import exceptions as neo4j_errors
from neo4j.exceptions import Neo4jError

from embed_pipeline.domain.errors import (
    ConfigurationError,
    CredentialsError,
    DatabaseFault,
    SchemaError,
    UnreachableError,
)
from embed_pipeline.store.connection import fault_of


def answered(code: str) -> Neo4jError:
    """As the driver makes it of what the server says."""
    return Neo4jError._hydrate_neo4j(code=code, message="…")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (neo4j_errors.ServiceUnavailable(), DatabaseFault.AWAY),
        (neo4j_errors.IncompleteCommit(), DatabaseFault.AWAY),
        (neo4j_errors.SessionExpired(), DatabaseFault.AWAY),
        (answered("Neo.TransientError.General.DatabaseUnavailable"), DatabaseFault.AWAY),
        (TimeoutError(), DatabaseFault.AWAY),
        (ConnectionResetError(), DatabaseFault.AWAY),
        (UnreachableError(), DatabaseFault.AWAY),
        (
            answered("Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration"),
            DatabaseFault.BUSY,
        ),
        (answered("Neo.TransientError.General.MemoryPoolOutOfMemoryError"), DatabaseFault.BUSY),
        (answered("Neo.TransientError.Transaction.DeadlockDetected"), DatabaseFault.BUSY),
        (answered("Neo.ClientError.Security.Unauthorized"), DatabaseFault.FINAL),
        (answered("Neo.ClientError.Security.Forbidden"), DatabaseFault.FINAL),
        (answered("Neo.ClientError.Statement.SyntaxError"), DatabaseFault.FINAL),
        (CredentialsError(), DatabaseFault.FINAL),
        (SchemaError(), DatabaseFault.FINAL),
        (ConfigurationError(), DatabaseFault.FINAL),
        (TypeError(), DatabaseFault.FINAL),
    ],
    ids=lambda value: getattr(value, "code", None) or type(value).__name__,
)
def test_an_error_means_one_thing(error: Exception, fault: DatabaseFault) -> None:
    assert fault_of(error) is fault
