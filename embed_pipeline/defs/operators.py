"""Who launched a run: the user that the proxy names, a schedule, or unknown."""

from typing import Final

import dagster as dg
from dagster import QueuedRunCoordinator, SubmitRunContext

from embed_pipeline.defs.runs import DRAIN_TAG, EMBEDDINGS
from embed_pipeline.domain.audit import MAX_ACTOR, Operator, bounded

USER_HEADER: Final = "X-Forwarded-User"
"""The proxy sets it to the name it has let in, and drops any that a client sends."""
USER_TAG: Final = "embed_pipeline/user"
_BY_ITSELF: Final = {"dagster/schedule_name": "schedule", "dagster/sensor_name": "sensor"}
UNKNOWN: Final = "an unknown user of Dagster"


class UserRunCoordinator(QueuedRunCoordinator):
    """Queues runs, and tags each with the user whom the proxy has let in.

    Dagster itself keeps nothing of who launched a run. The tag is set from the header or removed:
    one that somebody typed in the launchpad, or that a repeated run inherited, names nobody.

    A run that materializes embeddings drains: it gets the tag that bounds the drains at once, which
    only runs of jobs have by themselves.
    """

    def submit_run(self, context: SubmitRunContext) -> dg.DagsterRun:
        """Tag the run, then queue it."""
        run = context.dagster_run
        user = (context.get_request_header(USER_HEADER) or "").strip()
        tags = {USER_TAG: bounded(user, MAX_ACTOR)} if user else {}
        if tags or USER_TAG in run.tags:
            # Dagster has no way to remove a tag from a stored run.
            self._instance.add_run_tags(run.run_id, {USER_TAG: "", **tags})
        if any(key.path[-1] == EMBEDDINGS for key in run.asset_selection or ()):
            self._instance.add_run_tags(run.run_id, {DRAIN_TAG: "true"})
        return super().submit_run(context)


def operator_of(context: dg.OpExecutionContext) -> Operator:
    """The operator behind the run of an op."""
    tags = context.run.tags
    if user := tags.get(USER_TAG):
        return Operator(user, context.run_id)
    for tag, kind in _BY_ITSELF.items():
        if name := tags.get(tag):
            return Operator(f"{kind} {name}", context.run_id)
    return Operator(UNKNOWN, context.run_id)
