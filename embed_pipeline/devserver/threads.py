"""Many downloads at once that end at the first error or Ctrl-C."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

GRACE_SECONDS: Final = 2.0

Item = TypeVar("Item")


def run_all(
    work: Callable[[Item], None], items: Iterable[Item], *, threads: int, stop: threading.Event
) -> None:
    """Do ``work`` for all items; raise the first error. ``work`` should end when ``stop`` is set.

    Daemon threads, not an executor: that one waits for its threads even after Ctrl-C, and a
    thread may hang in a read, or in jgo's sleep of 60 s when the repository asks to slow down.
    """
    todo = iter(list(items))
    errors: list[Exception] = []
    taking = threading.Lock()

    def take_and_work() -> None:
        while not stop.is_set():
            with taking:
                try:
                    item = next(todo)
                except StopIteration:
                    return
            try:
                work(item)
            except Exception as error:
                errors.append(error)
                stop.set()

    workers = [threading.Thread(target=take_and_work, daemon=True) for _ in range(threads)]
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers) and not stop.is_set():
            stop.wait(0.05)
    finally:
        stop.set()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
