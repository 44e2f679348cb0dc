"""One drain of the fleet: the real one, in a process of its own, that can be hurt from outside.

The process is forked from a server that has imported this module; see ``fleet``.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from embed_pipeline.domain.embedding import Embedded, PreparedText
from embed_pipeline.embedding.openai import OpenAIEmbedder
from embed_pipeline.embedding.tokens import tokenizer
from embed_pipeline.operations import wiring
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.worker.options import DrainOptions
from tests.proof.chaos import mutants
from tests.proof.chaos.history import Log
from tests.proof.chaos.recording import Traps, record_everything
from tests.proof.chaos.texts import KILLER

STOP_AT_WRITE, KILL_AT_WRITE = signal.SIGUSR1, signal.SIGUSR2
"""What the fleet sends to set a trap."""

OWN_PREFIXES = ("EMBED_", "EMBEDDING_", "NEO4J_", "OPENAI_")

tokenizer()  # Half a second, paid once by the server that all drains are forked from.


@dataclass(frozen=True, slots=True)
class Life:
    """All that a drain process is told at its start."""

    who: str
    folder: Path
    variables: dict[str, str]
    mutant: str | None


class Victim(OpenAIEmbedder):
    """Some texts kill the process that embeds them."""

    log: Log

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        if any(KILLER in text.text for text in texts):
            self.log("poisoned")
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().embed(texts)


def settings_from(variables: dict[str, str], folder: Path) -> Settings:
    """Settings of these variables and of no others."""
    for name in list(os.environ):
        if name.startswith(OWN_PREFIXES):
            del os.environ[name]
    os.environ.update(variables)
    return load_settings(folder / "no.env")


def live(life: Life) -> None:
    """The whole life of the process."""
    _end_with_the_harness()
    output = os.open(life.folder / "drains.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    logging.basicConfig(format=f"%(asctime)s {life.who} %(message)s", force=True)
    logging.getLogger("embed_pipeline").setLevel(logging.INFO)
    if life.mutant:
        mutants.apply(life.mutant)
    asyncio.run(_drain(life))


def _end_with_the_harness() -> None:
    harness = multiprocessing.parent_process()
    assert harness is not None

    def watch() -> None:
        harness.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


async def _drain(life: Life) -> None:
    log, traps, stop = Log(life.folder, life.who), Traps(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(STOP_AT_WRITE, lambda: setattr(traps, "is_stop_set", True))
    loop.add_signal_handler(KILL_AT_WRITE, lambda: setattr(traps, "is_kill_set", True))
    log("born", pid=os.getpid())
    record_everything(log, traps)
    settings = settings_from(life.variables, life.folder)
    async with wiring.opened_drain(
        settings,
        _embedder(settings, log),
        owner=f"{life.who}/{os.getpid()}",
        options=_options(settings),
        stop=stop,
    ) as (_, drain):
        report = await drain.run()
    log("ended", report=report.as_dict())


def _embedder(settings: Settings, log: Log) -> Victim:
    assert settings.openai_api_key is not None
    embedder = Victim(
        model=settings.model,
        dimensions=settings.dimensions,
        api_key=settings.openai_api_key.get_secret_value(),
        base_url=settings.openai_base_url,
    )
    embedder.log = log
    return embedder


def _options(settings: Settings) -> DrainOptions:
    return replace(
        wiring.drain_options(settings),
        # Few, so that drains meet, and that not everything is a suspect after a few kills.
        jobs_per_lease=6,
        requests_at_once=2,
        until_empty=False,
        idle_pause=timedelta(milliseconds=200),
        grace=timedelta(seconds=2),
    )
