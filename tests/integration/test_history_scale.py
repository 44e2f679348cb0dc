"""Ninety days of readings: they load, they are what was put in, and memory stays bounded."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from embed_pipeline import history
from embed_pipeline.history.archive import Archive
from tests.support.generated_history import by_day, insert, make_home, readings
from tests.support.project import ROOT

NINETY_DAYS = 90 * 24 * 60
IN_THE_LOG = NINETY_DAYS if os.environ.get("FULL_HISTORY") else 4_000
"""Dagster takes 1.7 ms to read a reading, four minutes for all; FULL_HISTORY=1 reads them."""
MOST_MEGABYTES = 600
NOWHERE = "memory://nowhere"

READ = """
import sys, threading, psutil
from embed_pipeline import history

peak, done, this = 0, threading.Event(), psutil.Process()

def watch():
    global peak
    while not done.wait(0.02):
        peak = max(peak, this.memory_info().rss)

watching = threading.Thread(target=watch)
watching.start()
frame = history.queue_metrics(instance=sys.argv[1], archive=sys.argv[2], progress=True)
done.set()
watching.join()
print(peak)
frame.to_parquet(sys.argv[3])
"""
"""Watched from inside: the kernel's own peak of a new process is at first that of its parent."""


def test_ninety_exported_days_are_what_was_put_in(tmp_path: Path) -> None:
    put = readings(NINETY_DAYS)
    archive = Archive.at(str(tmp_path / "history"))
    for day, rows in by_day(put):
        archive.write("queue_metrics", day, rows)
    assert len(archive.days("queue_metrics")) == 90

    found = history.queue_metrics(archive=str(tmp_path / "history"))

    pd.testing.assert_frame_equal(found, put, check_freq=False)


@pytest.mark.timeout(1_800)
def test_the_event_log_alone_is_read_in_bounded_memory_with_a_bar(tmp_path: Path) -> None:
    put = readings(IN_THE_LOG)
    home = make_home(tmp_path / "dagster")
    insert(home, put)

    result = subprocess.run(
        [sys.executable, "-c", READ, str(home), NOWHERE, str(tmp_path / "found.parquet")],
        # A bar is drawn for people only, unless it is told otherwise.
        env={**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert "Reading history" in result.stderr
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "found.parquet"), put, check_freq=False
    )
    assert 50 < int(result.stdout) / 1_000_000 < MOST_MEGABYTES
