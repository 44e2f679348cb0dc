"""Retrievers of other libraries, with the real packages, through a cut-over."""

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from embed_pipeline.operations import cutover
from tests.acceptance.cutover.conftest import NEW_LENGTH, OLD_LENGTH, Deployment, text_of
from tests.clients.packages import python_with_clients
from tests.conftest import TestServer
from tests.support.project import ROOT

SCRIPT = ROOT / "tests" / "clients" / "scripts" / "follow.py"


@pytest.mark.parametrize(
    "library", ["graphrag", pytest.param("langchain", marks=pytest.mark.proof)]
)
async def test_m131_retrievers_follow_a_cutover_and_its_rollback(
    deployment: Deployment, neo4j_server: TestServer, library: str
) -> None:
    python = await asyncio.to_thread(python_with_clients)
    [packages] = (python.parent.parent / "lib").glob("python*/site-packages")
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert client.stdin is not None
    assert client.stdout is not None

    def say(value: Any) -> None:
        assert client.stdin is not None
        client.stdin.write(json.dumps(value).encode() + b"\n")

    async def search(number: int) -> tuple[str, int]:
        say(text_of(number))
        assert client.stdout is not None
        found, length = json.loads(await client.stdout.readline() or '["nothing", 0]')
        return found, length

    auth = [neo4j_server.username, neo4j_server.password]
    say(
        {
            "library": library,
            "packages": str(packages),
            "uri": neo4j_server.uri,
            "auth": auth,
            "database": neo4j_server.database,
        }
    )
    try:
        name, length = await search(2)
        assert ("e2" in name, length) == (True, OLD_LENGTH)
        await deployment.gone()
        name, length = await search(3)
        assert ("e3" in name, length) == (True, NEW_LENGTH)
        await cutover.rollback(deployment.driver, deployment.settings)
        name, length = await search(4)
        assert ("e4" in name, length) == (True, OLD_LENGTH)
    finally:
        client.stdin.close()
        await client.wait()
