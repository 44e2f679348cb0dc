"""Removes what a test with queues of its own has left on the server that all tests share."""

from collections.abc import Sequence
from typing import Final, LiteralString

from neo4j import GraphDatabase

from tests.conftest import TestServer

SHOWN: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (
    ("SHOW CONSTRAINTS YIELD name, labelsOrTypes", "DROP CONSTRAINT $name IF EXISTS"),
    ("SHOW INDEXES YIELD name, labelsOrTypes", "DROP INDEX $name IF EXISTS"),
)


def drop_queues(server: TestServer, queues: Sequence[str], labels: Sequence[str]) -> None:
    """Drop the constraints and indexes of these queues and of these labels, and every node."""
    ends = tuple(f"_{queue}" for queue in queues)
    auth = (server.username, server.password)
    with GraphDatabase.driver(server.uri, auth=auth) as driver:
        driver.execute_query("MATCH (n) DETACH DELETE n")
        for show, drop in SHOWN:
            for row in driver.execute_query(show).records:
                found = row["labelsOrTypes"] or []
                if any(label in labels or label.endswith(ends) for label in found):
                    driver.execute_query(drop, name=row["name"])
