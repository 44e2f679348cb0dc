"""The session of ``embed-pipeline dev``: what it writes is its user's alone."""

import os
import stat
import subprocess
from pathlib import Path

from embed_pipeline.devserver.dev_session import dev_session


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_there_and_what_children_write_is_closed_to_other_users(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        log = tmp_path / "dagster" / "storage" / "drain.err"
        log.parent.mkdir(parents=True)
        log.write_text("said by an earlier version")
        with dev_session(tmp_path):
            subprocess.run(["mkdir", "new"], cwd=tmp_path, check=True)
            subprocess.run(["touch", "new/dagster.log"], cwd=tmp_path, check=True)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)

    folders = [tmp_path, tmp_path / "dagster", log.parent, tmp_path / "new"]
    assert [mode(folder) for folder in folders] == [0o700] * 4
    assert [mode(file) for file in (log, tmp_path / "new/dagster.log")] == [0o600] * 2
