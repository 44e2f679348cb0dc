"""Ctrl-C, ``kill`` and a closed terminal as one request to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Self

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Raises ``KeyboardInterrupt`` in the main thread for the first signal that means stop.

    A closed terminal is reported more than once (by the kernel, by the shell, by ``make``), so
    everything else that comes while the stop is under way is not heard, but for Ctrl-C: a second
    one is meant, and interrupts the waiting for an orderly end.
    """

    def __init__(self) -> None:
        self._is_stopping = False
        self._is_held_back = False
        self._heard = False
        self._before: dict[signal.Signals, signal.Handlers] = {}

    @property
    def outlive_hang_up(self) -> bool:
        """Whether SIGHUP stays ignored, as it was at the start (``nohup``)."""
        return self._before.get(signal.SIGHUP) is None

    def __enter__(self) -> Self:
        for number in STOPPING:
            # A process that ignores a hang-up wants to outlive it. But SIGINT is ignored in the
            # background of every script, and `kill -INT` should work there all the same.
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._hear)  # pyright: ignore[reportArgumentType]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """Note that the stop has begun, whatever the reason."""
        self._is_stopping = True

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Defer signals to the end of the block: what it starts must not be lost half-way."""
        self._is_held_back = True
        try:
            yield
        finally:
            self._is_held_back = False
        if self._heard:
            self._interrupt()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._is_stopping and number != signal.SIGINT:
            return
        self._heard = True
        if not self._is_held_back:
            self._interrupt()

    def _interrupt(self) -> None:
        self._heard = False
        self._is_stopping = True
        raise KeyboardInterrupt
