"""``embed-pipeline dev`` as it is, with ``tests.support.dagster_stand_in`` in the place of Dagster.

``python -m tests.support.dev_stand_in dev --port 3000``. Dagster takes half a minute to start, and
how everything ends does not depend on it. The database is not prepared: none is needed.
"""

import sys
from pathlib import Path
from unittest.mock import patch

from embed_pipeline.cli import app as cli
from embed_pipeline.devserver import dagster_process, dev


def command(_project: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "tests.support.dagster_stand_in", str(port)]


if __name__ == "__main__":
    with (
        patch.object(dagster_process, "dagster_command", command),
        patch.object(dagster_process, "prepare_storage"),
        patch.object(dev, "prepare_database"),
    ):
        cli.main()
