"""An update without a pause: drains of this and of the next version on one queue."""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from embed_pipeline.store.schema.objects import SCHEMA_VERSION
from tests.conftest import TestServer
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.drain_launcher import environment_for
from tests.support.project import ROOT

LEASE_MS = 60_000
NEXT = SCHEMA_VERSION + 1
ADDED_INDEX = "embed_job_created"
ADDED = f"""\
    Migration(
        version={NEXT},
        objects=(_index("{ADDED_INDEX}", "EmbedJob", "created_at"),),
        statements=("MATCH (job:EmbedJob) SET job.added = true",),
    ),
)

ENTITY_VECTOR_INDEX_NAME"""


@dataclass
class Program:
    """The package of some version, as it is installed on some machine."""

    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from embed_pipeline.cli.app import main; main()", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    async def run(self, *arguments: str) -> tuple[int, str]:
        return await ended(self.start(*arguments))


async def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = await asyncio.to_thread(process.communicate)
    return process.returncode, " ".join(said.split())


def add_next_version(folder: Path, *, oldest: int) -> None:
    """Copy this version, with one index and one property more in its schema."""
    package = folder / "embed_pipeline"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "embed_pipeline", package, ignore=ignored)
    file = package / "store/schema/objects.py"
    text = file.read_text()
    for old, new in (
        (f"SCHEMA_VERSION: Final = {SCHEMA_VERSION}\n", f"SCHEMA_VERSION: Final = {NEXT}\n"),
        ("OLDEST_BESIDE: Final = ", f"OLDEST_BESIDE: Final = {oldest}  # was "),
        (")\n\nENTITY_VECTOR_INDEX_NAME", ADDED),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text)


@pytest.fixture
async def programs(
    neo4j_server: TestServer, queue: DrainUnderTest, tmp_path: Path
) -> AsyncIterator[tuple[Program, Program]]:
    """This version and a folder for the next one; the schema is that of this one afterwards."""
    environment = environment_for(neo4j_server, queue.provider, lease_ms=LEASE_MS)
    both = (Program(ROOT, environment), Program(tmp_path, environment))
    yield both
    queue.provider.gate.set()
    for process in (process for program in both for process in program.started):
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    await queue.run("DROP INDEX $name IF EXISTS", name=ADDED_INDEX)
    await queue.run(
        "MATCH (s:EmbedSchema) SET s.version = $version, s.oldest = $version",
        version=SCHEMA_VERSION,
    )


async def test_drains_of_two_versions_work_side_by_side(
    queue: DrainUnderTest, programs: tuple[Program, Program]
) -> None:
    this, following = programs
    add_next_version(following.folder, oldest=SCHEMA_VERSION)
    queue.provider.gate.clear()
    await queue.given(10, prefix="before-")
    drains = [this.start("drain", "--max-jobs", "10")]
    await until(lambda: len(queue.provider.requests) == 1)

    installed, said = await following.run("init")
    assert installed == 0, said
    for number, program in ((2, following), (3, this)):
        await queue.given(10, prefix=f"after-{number}-")
        drains.append(program.start("drain", "--max-jobs", "10"))
        await until(lambda number=number: len(queue.provider.requests) == number)
    queue.provider.gate.set()
    answers = [await ended(drain) for drain in drains]

    assert [code for code, _ in answers] == [0, 0, 0], answers
    rows = await queue.run(
        "MATCH (j:EmbedCompleted) RETURN j.last_owner AS owner, count(*) AS jobs, max(j.fence) AS f"
    )
    assert [(row["jobs"], row["f"]) for row in rows] == [(10, 1)] * 3
    assert await queue.counted() == {"completed": 30}


async def test_an_old_program_does_not_install_over_a_newer_schema(
    queue: DrainUnderTest, programs: tuple[Program, Program]
) -> None:
    this, following = programs
    add_next_version(following.folder, oldest=SCHEMA_VERSION)
    await following.run("init")

    code, said = await this.run("init")

    assert code == 5
    assert f"the schema is of version {NEXT}, this program knows {SCHEMA_VERSION}" in said
    [row] = await queue.run("MATCH (s:EmbedSchema) RETURN s.version AS version")
    assert row["version"] == NEXT


async def test_an_old_drain_does_not_start_on_a_schema_that_it_cannot_live_with(
    queue: DrainUnderTest, programs: tuple[Program, Program]
) -> None:
    this, following = programs
    add_next_version(following.folder, oldest=NEXT)
    await queue.given(1)
    await following.run("init")

    code, said = await this.run("drain")

    assert code == 5
    assert "update embed-pipeline" in said
    assert await queue.counted() == {"pending": 1}


async def test_a_new_drain_does_not_start_before_the_schema_is_made(
    queue: DrainUnderTest, programs: tuple[Program, Program]
) -> None:
    _, following = programs
    add_next_version(following.folder, oldest=SCHEMA_VERSION)
    await queue.given(1)

    code, said = await following.run("drain")

    assert code == 5
    assert re.search(rf"the schema lacks {ADDED_INDEX}; run '\S*embed-pipeline init'", said)
    assert await queue.counted() == {"pending": 1}
