"""``python -m tests.proof.soak --minutes 60``: exits with 1 if something grows that must not."""

import argparse
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from embed_pipeline.devserver.temporary import temporary_server
from tests.conftest import TestServer
from tests.proof.soak.run import Plan, soak
from tests.proof.soak.verdict import table


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--per-second", type=float, default=2.0, help="entities written")
    chosen = parser.parse_args()
    plan = Plan(
        duration=timedelta(minutes=chosen.minutes),
        every=timedelta(seconds=chosen.every),
        per_second=chosen.per_second,
    )
    with temporary_server() as neo4j, tempfile.TemporaryDirectory() as folder:
        pid = neo4j.status().pid
        assert pid is not None
        server = TestServer(uri=neo4j.uri, username=neo4j.username, password=neo4j.password)
        result = soak(plan, server, Path(folder), neo4j=(pid, neo4j.home / "data"), say=say)
    say(
        f"\n{chosen.minutes:g} minutes, {result.written} written, {result.deleted} jobs deleted, "
        f"the long drain was started again {result.restarts} times"
    )
    say(table(result.rows))
    return 0 if result.is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
