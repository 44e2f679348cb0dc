"""The rights of a database user, derived from the statements: all that is used, and no more."""

import re
from collections.abc import Iterator
from typing import LiteralString, cast

import pytest
from neo4j import Driver, GraphDatabase
from neo4j.exceptions import ClientError

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.store.naming import for_shape
from tests.conftest import TestServer
from tests.support.project import ROOT

SCRIPT = (ROOT / "deploy/neo4j/rights.cypher").read_text()
RIGHTS = [
    " ".join(line for line in part.splitlines() if not line.startswith("//")).strip()
    for part in re.sub(r"(?m)^//.*$", "", SCRIPT).split(";")
    if part.strip()
]
STORE = ROOT / "embed_pipeline/store"
BY_ADMINISTRATORS = {
    *("cypher/trigger.py", "cypher/sample.py", "cypher/alias.py"),
    *("schema/objects.py", "schema/installation.py"),
}
"""Statements of ``init``, of the sample graph and of a cut-over, which also makes indexes; of these
the user of the queue runs none that changes anything."""
STATEMENTS = "\n".join(
    path.read_text()
    for path in sorted(STORE.rglob("*.py"))
    if path.relative_to(STORE).as_posix() not in BY_ADMINISTRATORS
)
CHANGE = re.compile(
    r"\b(?:SET|REMOVE)\b(.*?)"
    r"(?=\b(?:SET|REMOVE|MATCH|MERGE|CREATE|DETACH|WITH|WHERE|RETURN|CALL|UNWIND|ON)\b|\"\"\")",
    re.DOTALL,
)
SHAPE = EntityShape()


def granted(right: str) -> set[str]:
    """The names that the grants of this right list; fails if there is no such grant."""
    found = [line.removeprefix(f"GRANT {right} ") for line in RIGHTS if f"GRANT {right} " in line]
    assert found, right
    return {name.strip() for text in found for name in text.split(" ON ")[0].split(",")}


def nodes(right: str) -> set[str]:
    """The labels of the queue that the grants of this right are for."""
    lines = [line for line in RIGHTS if line.startswith(f"GRANT {right} ")]
    return {label for line in lines for label in re.findall(r"\bEmbed\w+", line)}


def properties(right: str) -> set[str]:
    """The properties of entities that the grants of this right list."""
    [line] = [x for x in RIGHTS if x.startswith(f"GRANT {right} ") and "NODES Entity " in x]
    [names] = re.findall(r"\{(.*?)\}", line)
    return {name.strip() for name in names.split(",")}


def changed(variable: str) -> set[str]:
    """What statements set or remove on a variable."""
    clauses = CHANGE.findall(for_shape(cast("LiteralString", STATEMENTS), SHAPE))
    return {name for clause in clauses for name in re.findall(rf"\b{variable}\.`?(\w+)`?", clause)}


def test_the_procedures_and_functions_are_those_that_are_called() -> None:
    called = set(re.findall(r"CALL ((?:apoc|db|dbms)(?:\.\w+)+)\(", STATEMENTS))
    functions = set(re.findall(r"RETURN (apoc(?:\.\w+)+)\(", STATEMENTS))

    assert granted("EXECUTE PROCEDURE") == called
    assert granted("EXECUTE USER DEFINED FUNCTION") == functions


def test_the_labels_are_those_of_the_queue() -> None:
    used = set(re.findall(r":(Embed[A-Z]\w+)", STATEMENTS)) | {"EmbedSchema"}
    made = set(re.findall(r"MERGE \(\w+:(Embed\w+)", STATEMENTS))
    made |= set(re.findall(r":(Embed\w+)", "".join(re.findall(r"CREATE \(.*\)\n", STATEMENTS))))
    deletes = {
        "EmbedJob": r"DETACH DELETE job\b",
        "EmbedAudit": r"\nDELETE audit\b",
        "EmbedBatch": r"\nDELETE batch\b",
        "EmbedPiece": r"\nDETACH DELETE piece\b",
        "EmbedPieceStaged": r"\nDETACH DELETE piece\b",
    }
    deleted = {label for label, pattern in deletes.items() if re.search(pattern, STATEMENTS)}

    assert nodes("MATCH") == used
    assert nodes("CREATE ON") == made
    assert nodes("DELETE") == deleted
    relationships = {"next", "link"}
    nodes_deleted = {"job", "audit", "batch", "piece"}
    assert set(re.findall(r"DELETE (\w+)", STATEMENTS)) == {*nodes_deleted, *relationships}


def test_the_labels_that_move_are_those_of_the_states() -> None:
    states = {f"Embed{status.capitalize()}" for status in JobStatus}

    assert granted("SET LABEL") == {*states, "EmbedPiece", "EmbedChunk", "Chunk"}
    assert granted("REMOVE LABEL") == {*states, "EmbedPieceStaged"}


def test_the_relationships_are_those_of_pieces() -> None:
    pieces = {"FROM_DOCUMENT", "NEXT_CHUNK"}
    made = set(re.findall(r"CREATE \(\w+\)-\[:(\w+)\]", STATEMENTS))

    lines = [line for line in RIGHTS if " RELATIONSHIPS " in line]
    named = [set(re.findall(r"\b[A-Z]+_[A-Z]+\b", line)) for line in lines]

    assert made == pieces
    assert named == [pieces] * 3


def test_of_an_entity_only_vector_provenance_and_lock_can_be_written() -> None:
    assert properties("SET PROPERTY") == changed("entity") | {SHAPE.vector}
    assert properties("SET PROPERTY") == {SHAPE.vector, *SHAPE.provenance, "_embed_lock"}


def test_of_an_entity_only_what_decides_about_the_vector_can_be_read() -> None:
    decisive = {*SHAPE.text, SHAPE.version, SHAPE.valid_to}

    assert properties("MATCH") == {*decisive, SHAPE.vector, *SHAPE.provenance}


def test_no_right_is_for_everything() -> None:
    assert [line for line in RIGHTS if re.search(r"\bALL\b|\bWRITE\b|GRAPH \*|\* ON", line)] == []


@pytest.fixture(scope="module")
def driver(neo4j_server: TestServer) -> Iterator[Driver]:
    auth = (neo4j_server.username, neo4j_server.password)
    with GraphDatabase.driver(neo4j_server.uri, auth=auth) as opened:
        yield opened


@pytest.mark.parametrize("statement", RIGHTS)
def test_neo4j_can_read_every_right_though_community_has_none(
    driver: Driver, statement: LiteralString
) -> None:
    if "CREATE USER" in statement:
        driver.execute_query(f"EXPLAIN {statement}", password="x" * 12, database_="system")
        return
    with pytest.raises(ClientError, match="Unsupported administration command"):
        driver.execute_query(f"EXPLAIN {statement}", database_="system")
