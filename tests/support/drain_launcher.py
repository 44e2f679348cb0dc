"""Starts drains in processes of their own, and ends those that a test has left."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from tests.conftest import TestServer
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import KEY, OpenAIServer
from tests.support.project import ROOT
from tests.support.queue_harness import DIMENSIONS, MODEL


def environment_for(server: TestServer, provider: OpenAIServer, *, lease_ms: int) -> dict[str, str]:
    """What a drain needs to know; recovery is eager, the rate limit generous."""
    return {
        **os.environ,
        **server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBED_JOB_LOCK_DURATION_MS": str(lease_ms),
        "EMBED_JOB_RECOVERY_INTERVAL": "200",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "EMBEDDING_RATE_LIMIT_TOKENS": "1000",
        "EMBEDDING_PROVIDER": "openai",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": provider.base_url,
        "EMBEDDING_PROFILE": "openai",
    }


HOLDS = {"EMBED_JOB_LOCK_DURATION_MS": "300000"}
"""A lease that is not meant to expire, however busy the machine is."""


class Drains:
    """Starts drains, and ends those that a test has left."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._started: list[subprocess.Popen[str]] = []
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by end

    def start(
        self, *, environment: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.drain_main", json.dumps(options)],
            cwd=ROOT,
            env={**self.environment, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._started.append(process)
        return process

    def said(self) -> str:
        """The warnings of all drains."""
        self._log.seek(0)
        return self._log.read()

    async def report(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        said, _ = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, self.said()
        return json.loads(said)

    async def until_all_completed(self, queue: DrainUnderTest, jobs: int) -> dict[str, Any]:
        """Run a drain that waits for jobs to come back, until all are done."""
        process = self.start(until_empty=False, environment=HOLDS)
        async with asyncio.timeout(300):
            # What is waited for happens in another process.
            while (await queue.counted()).get("completed") != jobs:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        process.terminate()
        return await self.report(process)

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._log.close()
