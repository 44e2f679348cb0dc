"""The statements about pending jobs of a model that the queue belonged to before."""

from typing import Final, LiteralString

_LANES: Final[tuple[LiteralString, ...]] = ("ready_at", "suspect_at", "run_after")
_SIDES: Final[tuple[LiteralString, ...]] = ("<", ">")


def _of_other_models(lane: LiteralString, side: LiteralString) -> LiteralString:
    """Seeks around the model, so that its own jobs are not read."""
    return (
        f"MATCH (job:EmbedPending) USING INDEX SEEK job:EmbedPending(model, {lane})"
        f" WHERE job.model {side} $model AND job.{lane} IS NOT NULL"
    )


COUNT_FORMER: Final[LiteralString] = (
    "RETURN "
    + " + ".join(
        [f"COUNT {{ {_of_other_models(lane, side)} }}" for lane in _LANES for side in _SIDES]
    )
    + " AS jobs"
)

PICK_FORMER: Final[LiteralString] = " UNION ".join(
    [
        f"{_of_other_models(lane, side)} RETURN job.id AS id LIMIT $limit"
        for lane in _LANES
        for side in _SIDES
    ]
)
"""Lock and read again before ending one."""
