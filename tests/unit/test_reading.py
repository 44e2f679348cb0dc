"""How jobs appear, in the words of ``doctor`` and ``status``."""

from dataclasses import replace
from datetime import timedelta

import pytest

from embed_pipeline.operations.reading import arrival
from embed_pipeline.store.triggers import NO_TRIGGER, TriggerState

MINUTE = timedelta(minutes=1)
ACTIVE = TriggerState(is_installed=True, is_active=True, is_other=False)


def test_with_a_trigger_the_job_comes_with_the_write_whatever_the_scan_does() -> None:
    for interval in (MINUTE, timedelta(0)):
        found = arrival(ACTIVE, interval)

        assert (found.is_at_once, found.is_sure) == (True, True)


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        (NO_TRIGGER, "there is no trigger"),
        (replace(NO_TRIGGER, is_other=True), "of other settings"),
        (replace(NO_TRIGGER, is_installed=True), "does not run the trigger yet"),
        (replace(NO_TRIGGER, is_known=False), "may not look at triggers"),
    ],
)
def test_without_one_it_is_said_why_and_how_late_the_scan_is(
    trigger: TriggerState, why: str
) -> None:
    scanned, never = arrival(trigger, MINUTE), arrival(trigger, timedelta(0))

    assert (scanned.is_at_once, scanned.is_sure) == (False, True)
    assert "1 min or more apart" in scanned.detail
    assert why in scanned.detail
    assert (never.is_at_once, never.is_sure) == (False, False)
    assert why in never.detail
    assert "EMBED_RECONCILE_INTERVAL is 0" in never.detail
