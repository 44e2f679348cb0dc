"""Judges how much of the budgets is left."""

from embed_pipeline.domain.budget import NEARLY_SPENT, fullest
from embed_pipeline.domain.checks import BUDGET
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.verdict import Verdict


def budget_left(metrics: QueueMetrics) -> Verdict:
    """Warn before a budget is used up; afterwards say what waits and until when."""
    if (use := fullest(metrics.budget)) is None:
        return Verdict(BUDGET, passed=True, message="no budget is set")
    waiting = metrics.counts[JobStatus.PENDING]
    is_fine = use.percent < NEARLY_SPENT
    advice = "" if is_fine or use.is_spent else f"; raise {use.setting}, or let the rest wait"
    message = f"{use}{advice}; {waiting} jobs wait"
    return Verdict(BUDGET, is_fine, message, {"budget_used_percent": use.percent})
