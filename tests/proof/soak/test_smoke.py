"""The soak itself works: half a minute of it."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.conftest import TestServer
from tests.proof.soak.run import Plan, soak


@pytest.mark.proof
def test_a_short_soak_measures_everything(neo4j_server: TestServer, tmp_path: Path) -> None:
    plan = Plan(
        duration=timedelta(seconds=30),
        every=timedelta(seconds=3),
        keep=timedelta(seconds=10),
    )

    result = soak(plan, neo4j_server, tmp_path)

    assert result.written > 0
    assert result.deleted > 0
    names = {row.name for row in result.rows}
    for process in ("drain", "daemon", "web server", "code server"):
        assert {f"{process}: MB", f"{process}: files", f"{process}: threads"} <= names
    assert {"neo4j: connections", "nodes: EmbedJob", "dagster: events"} <= names
