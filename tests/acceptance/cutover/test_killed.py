"""Killed at any point: ``status`` tells the truth, searches go on, and the step can be repeated."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from embed_pipeline.domain.cutover import Phase
from embed_pipeline.operations import cutover
from embed_pipeline.store.connection import Driver
from tests.acceptance.cutover.conftest import NEAR, Deployment, text_of
from tests.acceptance.cutover.test_cutover import AT_ONCE


class KilledError(BaseException):
    """The process is gone: nothing after it is done."""


class DyingDriver:
    """A driver whose process is killed when it begins its next session after so many."""

    def __init__(self, driver: Driver, sessions: int) -> None:
        self._driver = driver
        self._left = sessions

    def session(self, *args: Any, **options: Any) -> Any:
        if self._left == 0:
            raise KilledError
        self._left -= 1
        return self._driver.session(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


async def lives_of(
    deployment: Deployment,
    step: Callable[[Driver], Awaitable[object]],
    allowed: set[Phase | None],
    *,
    every: int = 1,
    asked: str = text_of(1),
) -> int:
    """Repeat a step that is killed ``every`` sessions later each time; return how often it was."""
    lives, sessions = 0, 0
    while True:
        try:
            await step(cast("Driver", DyingDriver(deployment.driver, sessions)))
        except KilledError:
            sessions += every
            lives += 1
        else:
            return lives
        assert await deployment.phase() in allowed
        if lives % 5 == 0:
            [hit] = await deployment.search(asked)
            assert (hit.uid, hit.score > NEAR) == ("e1", True)


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.proof)])
async def test_m105_start_go_rollback_and_finish_can_be_killed_at_any_point(
    deployment: Deployment, every: int
) -> None:
    """Between any two sessions is a proof; CI takes one in eight."""
    settings = deployment.settings

    async def finish(driver: Driver) -> None:
        await cutover.finish(driver, settings, grace=AT_ONCE)

    started = await lives_of(deployment, deployment.start, {None, Phase.FILLING}, every=every)
    await deployment.embed()
    went = await lives_of(
        deployment,
        lambda driver: cutover.go(driver, settings),
        {Phase.FILLING, Phase.LIVE},
        every=every,
    )
    assert await deployment.phase() is Phase.LIVE
    back = await lives_of(
        deployment,
        lambda driver: cutover.rollback(driver, settings),
        {Phase.LIVE, Phase.ROLLED_BACK},
        every=every,
    )
    assert await deployment.phase() is Phase.ROLLED_BACK
    ended = await lives_of(deployment, finish, {Phase.ROLLED_BACK, Phase.FINISHING}, every=every)

    assert await deployment.phase() is None
    assert min(started, went, back, ended) > 0
    [hit] = await deployment.search(text_of(1))
    assert (hit.uid, hit.score > NEAR) == ("e1", True)


@pytest.mark.proof
async def test_m105_taking_over_the_name_of_an_index_can_be_killed_at_any_point(
    deployment: Deployment,
) -> None:
    """Only the first one is told to: the next ones find it in the alias."""
    before = await deployment.gone()
    settings = deployment.settings

    async def finish(driver: Driver) -> None:
        is_told = await deployment.phase() is not Phase.FINISHING
        await cutover.finish(driver, settings, grace=AT_ONCE, keep_index_name=is_told)

    ended = await lives_of(deployment, finish, {Phase.LIVE, Phase.FINISHING})

    alias = await deployment.alias()
    assert (alias.live.index, alias.phase) == (before.other and before.other.index, None)
    assert ended > 4
    [hit] = await deployment.search(text_of(1))
    assert (hit.uid, hit.score > NEAR) == ("e1", True)


async def test_m105_while_it_is_finished_nobody_goes_or_rolls_back(deployment: Deployment) -> None:
    await deployment.gone()
    sessions = 0
    while await deployment.phase() is not Phase.FINISHING:
        sessions += 1
        dying = cast("Driver", DyingDriver(deployment.driver, sessions))
        with pytest.raises(KilledError):
            await cutover.finish(dying, deployment.settings, grace=AT_ONCE)

    for step in (cutover.go, cutover.rollback):
        with pytest.raises(cutover.CutoverError, match="repeat 'embed-pipeline cutover finish'"):
            await step(deployment.driver, deployment.settings)
    assert len(await deployment.embed()) == 1
    await cutover.finish(deployment.driver, deployment.settings)
    assert await deployment.phase() is None
