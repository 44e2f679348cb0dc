"""The rule of lanes as a piece of Cypher: every statement that makes a job pending contains it.

``moves.lane`` is the same rule in Python; a test compares the two over every combination.
"""

from typing import Final, LiteralString

LANE: Final = ("run_after", "suspect_at", "ready_at", "urgency")
"""The properties that say which lane a pending job is in, and where in it."""


def enter_lane(
    *,
    priority: LiteralString,
    queued_at: LiteralString,
    expiries: LiteralString,
    run_after: LiteralString = "null",
) -> LiteralString:
    """The items of a ``SET`` that put ``job`` into its lane and take it out of all others.

    Invariant: a pending job is in exactly one lane: delayed until ``run_after``, else suspect if
    a lease of it has ever expired, else ready. The arguments are expressions, and the statement
    knows the time as ``now``. None of them may read a property that these items write: whether a
    later item sees what an earlier one wrote is the planner's choice.
    """
    is_delayed: LiteralString = f"coalesce({run_after} > now, false)"
    is_suspect: LiteralString = f"{expiries} > 0"
    return f"""
    job.run_after = CASE WHEN {is_delayed} THEN {run_after} END,
    job.suspect_at = CASE WHEN NOT {is_delayed} AND {is_suspect} THEN {queued_at} END,
    job.ready_at = CASE WHEN NOT {is_delayed} AND NOT {is_suspect} THEN {queued_at} END,
    job.urgency = CASE WHEN NOT {is_delayed} AND NOT {is_suspect} THEN -({priority}) END
"""
