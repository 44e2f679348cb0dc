"""The small run; ``make chaos`` does the large ones."""

import subprocess
import sys

import pytest

from tests.support.project import ROOT


@pytest.mark.timeout(900)
def test_the_queue_survives_kills_pauses_cut_commits_and_a_lost_server() -> None:
    command = [sys.executable, "-m", "tests.proof.chaos", "--small", "--part", "2", "--seed", "1"]

    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
