"""Offers the cut-over where the settings name another model than the live one."""

import os
import sys
from collections.abc import Callable

from embed_pipeline.devserver.output import Speaker
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.redact import printable
from embed_pipeline.operations import cutover, wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import connected

Ask = Callable[[], bool]
"""Waits for an answer to the question that was printed."""


def can_be_asked() -> bool:
    """Whether a person can answer; a terminal suspends background processes that read from it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def hear_yes() -> bool:
    """Read a line: is it a yes?"""
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def offer_change(as_set: Settings, speaker: Speaker, *, command: str, ask: Ask) -> None:
    """Show what filling the other model takes, and do it if that is wanted.

    Whatever goes wrong is said, and the live model goes on.
    """

    async def plan() -> cutover.Plan:
        async with connected(wiring.connection(as_set)) as driver:
            return await cutover.plan(driver, as_set, as_set)

    async def start(planned: cutover.Plan) -> None:
        async with connected(wiring.connection(as_set)) as driver:
            await cutover.start(driver, as_set, planned)

    try:
        planned = finish(plan())
        cost = planned.cost
        speaker.say(
            f"? Fill {printable(str(planned.candidate))} beside the live model now? {cost.texts:,} "
            f"texts, {cost.tokens:,} tokens, {cost.cost}; searches go on undisturbed [y/N]"
        )
        if not ask():
            speaker.say(f"▸ Not now; later: {command} cutover start")
            return
        finish(start(planned))
        speaker.say(
            f"▸ It is being filled; {command} cutover status shows its gates, {command} cutover go "
            "makes it live"
        )
    except EmbedPipelineError as error:
        speaker.say(f"! The live model goes on: {printable(str(error))}", style="yellow")
