"""Break the guards one by one, and see that the tests notice: ``python scripts/mutants.py``.

``tests/mutants.toml`` lists deliberately broken guards. Each is applied to a copy of the project,
and the test it names must fail. A name, or a part of one, runs only the mutants that have it.

Exit code 1: a mutant has survived, its text is no longer there, or a test fails without any; 2: no
mutant has the name.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from embed_pipeline.devserver.temporary import temporary_server

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants.toml"
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "node_modules")
PASSED, FAILED = 0, 1
"""Exit codes of pytest; all others mean that no test has judged."""


class Verdict(StrEnum):
    """What the tests said about a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    DOES_NOT_APPLY = "DOES NOT APPLY: its text is not there exactly once"
    NOT_JUDGED = "NOT JUDGED: the test did not run"


@dataclass(frozen=True)
class Mutant:
    """One guard, broken."""

    name: str
    invariant: str
    level: str
    file: str
    old: str
    new: str
    test: str

    def applies(self, root: Path = ROOT) -> bool:
        """Say whether the text to be replaced is there exactly once."""
        return (root / self.file).read_text(encoding="utf-8").count(self.old) == 1


def read_mutants(table: Path = TABLE) -> list[Mutant]:
    """Read the table."""
    rows = tomllib.loads(table.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**row) for row in rows]


def main(arguments: Sequence[str]) -> int:
    """Judge all mutants, or those whose name has an argument in it."""
    mutants = [
        mutant
        for mutant in read_mutants()
        if not arguments or any(part in mutant.name for part in arguments)
    ]
    if not mutants:
        # Without a test to run, pytest would run all of them.
        print(f"no mutant has {' or '.join(map(repr, arguments))} in its name; see {TABLE}")
        return 2
    with TemporaryDirectory(prefix="embed-pipeline-mutants-") as folder, server() as environment:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        tests = sorted({mutant.test for mutant in mutants})
        code, output = run(copy, environment, *tests)
        if code != PASSED:
            print(output, "The tests do not pass as they are; no mutant can be judged.", sep="\n")
            return 1
        verdicts = [report(mutant, copy, environment) for mutant in mutants]
    killed = verdicts.count(Verdict.KILLED)
    print(f"{killed} of {len(mutants)} mutants killed")
    return 0 if killed == len(mutants) else 1


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """One Neo4j for all, as an environment for the tests: NEO4J_TEST_URI if set, else a new one."""
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "EMBED_PIPELINE_SHRINK": "no",
        "EMBED_PIPELINE_EXAMPLES": "60",
        # The same steps each time, so that no mutant lives by luck.
        "CI": "1",
    }
    if "NEO4J_TEST_URI" in os.environ:
        yield environment
        return
    with temporary_server() as neo4j:
        yield environment | {
            "NEO4J_TEST_URI": neo4j.uri,
            "NEO4J_TEST_USERNAME": neo4j.username,
            "NEO4J_TEST_PASSWORD": neo4j.password,
        }


def report(mutant: Mutant, copy: Path, environment: dict[str, str]) -> Verdict:
    """Judge a mutant and say so."""
    start = time.monotonic()
    verdict = judge(mutant, copy, environment)
    seconds = time.monotonic() - start
    print(f"{mutant.invariant:4} {mutant.level:13} {mutant.name}: {verdict} ({seconds:.0f} s)")
    return verdict


def judge(mutant: Mutant, copy: Path, environment: dict[str, str]) -> Verdict:
    """Break the copy, run the test, mend the copy."""
    if not mutant.applies(copy):
        return Verdict.DOES_NOT_APPLY
    file = copy / mutant.file
    sound = file.read_text(encoding="utf-8")
    file.write_text(sound.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code, output = run(copy, environment, mutant.test)
    finally:
        file.write_text(sound, encoding="utf-8")
    if code not in (PASSED, FAILED):
        print(output)
    return {PASSED: Verdict.SURVIVED, FAILED: Verdict.KILLED}.get(code, Verdict.NOT_JUDGED)


def run(copy: Path, environment: dict[str, str], *tests: str) -> tuple[int, str]:
    """Run tests in the copy, and with its code; returns what pytest says."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider"]
    # Also those that only `make proof` runs.
    command += ["-m", ""]
    result = subprocess.run(
        [*command, *tests],
        cwd=copy,
        env=environment | {"PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
