"""Compares the settings with the data: for doctor, reconcile, status and checks."""

from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.misfits import Misfit, Names, misfits
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.graph_names import read_names, read_types
from embed_pipeline.store.queue import Queue


async def find_misfits(queue: Queue, settings: Settings, report: CoverageReport) -> list[Misfit]:
    """Mismatches that a scan shows; asks the graph for its names only if there are any.

    Costs the same for any size of graph, and nothing where all is well, but one small question
    where the settings name types of relationships: one of several that is wrong is seen by no scan.
    """
    shape = settings.entity_shape
    types = None
    if shape.has_relations and shape.relations.types:
        types = await read_types(queue.database)
    if not misfits(report, shape, Names(relations=types)):
        return []
    return misfits(report, shape, await read_names(queue.database, shape))


async def look_at_entities(queue: Queue, settings: Settings) -> CoverageReport:
    """Read one page of the entities as a scan does, without changing anything."""
    scan = Scan.begin(queue.reconciler(settings.model))
    await scan.step(dry_run=True)
    return scan.report
