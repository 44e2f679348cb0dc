"""Runs spread over the workers of Celery by design: ``test_several_machines`` has whole drains."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.machines import CELERY
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import BIN, ROOT
from tests.support.redis_server import running_redis

PATH = os.pathsep.join([str(ROOT), str(CELERY)])


@contextmanager
def worker(name: str, environment: dict[str, str], folder: Path) -> Iterator[None]:
    """A worker with one place."""
    command = [BIN / "celery", "--app", "tests.support.celery_app", "worker", "--queues", "dagster"]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*map(str, command), "--concurrency", "1", "--hostname", f"{name}@%h"],
            env={**environment, "WORKER": name},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def begun_by(client: redis.Redis, run: str) -> str:
    """The worker that has begun a run."""
    found: Any = client.blpop([f"begun {run}"], timeout=PATIENCE_SECONDS)
    assert found is not None, f"nobody has begun {run}"
    return found[1].decode()


def test_a_run_waits_behind_no_other_while_a_worker_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_redis() as broker, redis.Redis.from_url(broker, socket_timeout=None) as client:
        monkeypatch.setenv("CELERY_BROKER_URL", broker)
        monkeypatch.syspath_prepend(str(CELERY))
        from tests.support.celery_app import QUEUE, hold

        environment = {**os.environ, "PYTHONPATH": PATH}
        with worker("first", environment, tmp_path):
            for run in ("one", "two"):
                hold.apply_async([run], queue=QUEUE)
            assert begun_by(client, "one") == "first"
            with worker("second", environment, tmp_path):
                assert begun_by(client, "two") == "second"
                client.rpush("end two", 1)
            client.rpush("end one", 1)
