"""dagster.log: bounded, private, and never in the way of the program whose output it keeps."""

import io
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embed_pipeline.devserver import dagster_process
from embed_pipeline.devserver.rotating_log import RotatingLog


@contextmanager
def full_disk(at_bytes: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: what the kernel says then is not ENOSPC, but close."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def troubles() -> list[str]:
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dagster.log"


@pytest.fixture
def log(path: Path, troubles: list[str]) -> RotatingLog:
    return RotatingLog(path, on_trouble=troubles.append, largest_bytes=100, older_files=2)


def sizes(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in path.parent.iterdir()}


def test_a_full_log_is_put_aside_and_the_oldest_goes(log: RotatingLog, path: Path) -> None:
    for number in range(10):
        log.write(f"{number:039}\n")

    assert sizes(path) == {"dagster.log": 80, "dagster.log.1": 80, "dagster.log.2": 80}
    kept = "".join((path.parent / name).read_text() for name in sorted(sizes(path), reverse=True))
    assert [int(line) for line in kept.split()] == [4, 5, 6, 7, 8, 9]


def test_a_log_of_the_last_start_counts_as_well(
    log: RotatingLog, path: Path, troubles: list[str]
) -> None:
    log.write("a" * 60)
    log.close()

    RotatingLog(path, on_trouble=troubles.append, largest_bytes=100).write("b" * 60)

    assert sizes(path) == {"dagster.log": 60, "dagster.log.1": 60}


def test_a_line_longer_than_a_file_is_kept_whole(log: RotatingLog, path: Path) -> None:
    log.write("short\n")
    log.write("x" * 300)

    assert sizes(path) == {"dagster.log": 300, "dagster.log.1": 6}


def test_only_this_user_can_read_it(log: RotatingLog, path: Path) -> None:
    path.touch(mode=0o644)
    for _ in range(3):
        log.write("x" * 60)

    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}


def test_a_full_disk_is_said_once_and_writing_goes_on_when_there_is_room(
    path: Path, troubles: list[str]
) -> None:
    log = RotatingLog(path, on_trouble=troubles.append)
    log.write("before\n")

    with full_disk(at_bytes=10):
        for number in range(5):
            log.write(f"lost {number}\n")
    log.write("after\n")
    log.write("and on\n")

    [said] = troubles
    assert "dagster.log cannot be written: File too large" in said
    assert path.read_text() == "before\nlos\n(5 lines are missing here)\nafter\nand on\n"


def test_a_second_full_disk_is_said_again(path: Path, troubles: list[str]) -> None:
    log = RotatingLog(path, on_trouble=troubles.append)
    for _ in range(2):
        with full_disk(at_bytes=0):
            log.write("lost\n")
        log.write("kept\n")

    assert len(troubles) == 2


def test_a_device_in_the_place_of_the_log_keeps_its_mode(log: RotatingLog, path: Path) -> None:
    reader, device = os.openpty()
    before = os.fstat(device).st_mode
    path.symlink_to(os.ttyname(device))

    log.write("shown\n")

    assert os.read(reader, 100) == b"shown\r\n"
    assert os.fstat(device).st_mode == before
    os.close(reader)
    os.close(device)


def test_a_log_that_was_deleted_to_make_room_is_begun_anew(log: RotatingLog, path: Path) -> None:
    log.write("old\n")
    path.unlink()
    log.write("new\n")

    assert path.read_text() == "new\n"


def test_the_output_of_dagster_is_read_to_its_end_whatever_becomes_of_the_log(
    path: Path, troubles: list[str]
) -> None:
    output = io.StringIO("a line\nWARNING mind this\n" * 3)

    with full_disk(at_bytes=0):
        dagster_process._copy(
            output, RotatingLog(path, on_trouble=troubles.append), troubles.append
        )

    assert output.closed
    assert [said.split()[0] for said in troubles] == ["WARNING"] * 4
