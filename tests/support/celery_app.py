"""What a worker of Celery runs in a test: the app of ``dagster_celery``, with a task that waits."""

import os
from typing import Any

import redis
from dagster_celery.make_app import make_app

from tests.support.patience import PATIENCE_SECONDS

QUEUE = "dagster"
app: Any = make_app()


@app.task(name="hold")
def hold(name: str) -> None:
    """Say who has begun, and go on when somebody says so."""
    with redis.Redis.from_url(os.environ["CELERY_BROKER_URL"], socket_timeout=None) as client:
        client.rpush(f"begun {name}", os.environ["WORKER"])
        client.blpop([f"end {name}"], timeout=PATIENCE_SECONDS)
