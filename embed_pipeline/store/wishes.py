"""From the keys of entities to the jobs that are wanted for them."""

from collections.abc import Mapping, Sequence

from embed_pipeline.domain.errors import InvalidJobError, QueueError
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.load import CurrentEntity


def in_place_of_keys(
    entities: Sequence[str | NewJob], wishes: Sequence[NewJob], *, model: str
) -> list[NewJob]:
    """Replace keys by the jobs for them.

    Raises:
        InvalidJobError: a job is for another model.
    """
    left = iter(wishes)
    jobs = [entity if isinstance(entity, NewJob) else next(left) for entity in entities]
    if other := next((job for job in jobs if job.model != model), None):
        raise InvalidJobError(
            f"the job of {other.entity_uid!r:.200} is for the model {other.model!r:.200}, but the "
            f"queue is for {model!r}; nothing was enqueued"
        )
    return jobs


def wishes_for(
    keys: Sequence[str],
    entities: Mapping[str, CurrentEntity],
    config: QueueConfig,
    *,
    model: str,
    priority: int = 0,
    force: bool = False,
) -> list[NewJob]:
    """Jobs for entities named by their keys, each in the version and with the text it has now.

    Raises:
        QueueError: there is no entity with one of the keys.
    """
    if unknown := [key for key in keys if not entities[key].exists]:
        names = ", ".join(repr(key) for key in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        shape = config.shape
        raise QueueError(
            f"no current {shape.label} has the {shape.key} {names}{more}; nothing was enqueued"
        )
    return [_wish(key, entities[key], model=model, priority=priority, force=force) for key in keys]


def _wish(key: str, entity: CurrentEntity, *, model: str, priority: int, force: bool) -> NewJob:
    if entity.version is None:
        raise QueueError(
            f"{key!r:.200} cannot be embedded, {Unfit.VERSION.words}; nothing was enqueued"
        )
    return NewJob(
        key, model, entity.version, priority=priority, text_hash=entity.text_hash, force=force
    )
