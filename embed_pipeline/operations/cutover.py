"""The steps of a cut-over: each can be killed at any point, and repeated.

``start`` names the candidate first, so that ``status`` knows of it whatever happens next; ``go``
and ``rollback`` are one transaction each; ``finish`` says that it removes before it does.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from embed_pipeline.domain.audit import Operator, OperatorAction
from embed_pipeline.domain.batch import paid_for
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.cutover import (
    GRACE,
    Alias,
    Gate,
    Phase,
    Side,
    coverage_gate,
    lengths_gate,
    mock_gate,
    quality_gate,
    why_not_to_finish,
)
from embed_pipeline.domain.errors import (
    ApocMissingError,
    CutoverError,
)
from embed_pipeline.domain.plan import Plan as Cost
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import settings_of
from embed_pipeline.operations.planning import make_plan
from embed_pipeline.operations.questions import ask_both, read_questions
from embed_pipeline.operations.scan import Scan
from embed_pipeline.operations.sides import candidate_side, live_side
from embed_pipeline.settings import Settings
from embed_pipeline.store.alias import Neo4jAlias, read_alias, read_use
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.removing import remove_side
from embed_pipeline.store.schema.renaming import take_names


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect that ``start`` would have."""

    live: Side
    candidate: Side
    cost: Cost
    """What filling the candidate takes."""


async def plan(driver: Driver, settings: Settings, wanted: Settings) -> Plan:
    """Look what a cut-over of the deployment of ``settings`` to ``wanted`` means.

    Raises:
        CutoverError: it is live already, or another cut-over is under way.
    """
    queue = wiring.queue_on(driver, settings)
    alias = await read_alias(queue.database, settings.queue)
    live = alias.live if alias else await live_side(driver, settings)
    identity = wiring.identity_of(wanted)
    if identity == live.identity:
        raise CutoverError(
            f"{live} is live already; name another one with --model or --provider, or set it in "
            "EMBEDDING_PROVIDER and EMBEDDING_MODEL"
        )
    candidate = candidate_side(settings, wanted, identity)
    if alias and alias.other and alias.other != candidate:
        raise CutoverError(
            f"a cut-over between {alias.live} and {alias.other} is under way ({alias.phase}); end "
            "it first: embed-pipeline cutover finish"
        )
    beside = settings_of(wanted, candidate)
    return Plan(live, candidate, await make_plan(wiring.queue_on(driver, beside), beside))


async def start(
    driver: Driver, settings: Settings, plan: Plan, *, operator: Operator | None = None
) -> Scan:
    """Put the candidate beside the live side, and enqueue every entity for it.

    What keeps the live side fresh (scan, drains, trigger) serves both from here on.
    """
    own = settings_of(settings, plan.candidate)
    acting = wiring.queue_on(driver, own)
    alias = await _alias(acting, settings).begin(plan.live, plan.candidate)
    if alias.phase is not Phase.FILLING:
        # Repeated after go: everything below was done long ago.
        raise CutoverError(f"the cut-over to {plan.candidate} is {alias.phase} already")
    await wiring.install_schema(driver, own, change_model=True)
    live = wiring.trigger_on(driver, settings_of(settings, plan.live))
    if (await live.inspect()).is_installed:
        await wiring.trigger_on(driver, own).install()
    await _note(acting, operator, f"start: {plan.candidate} beside {plan.live}")
    scan = Scan.begin(acting.reconciler(own.model))
    await scan.go_on()
    return scan


async def read(driver: Driver, settings: Settings) -> Alias | None:
    """The alias of this deployment."""
    return await read_alias(wiring.queue_on(driver, settings).database, settings.queue)


async def gates(
    driver: Driver, settings: Settings, alias: Alias, *, is_thorough: bool = True
) -> list[Gate]:
    """Look at the gates of the candidate.

    ``is_thorough`` reads every entity now and asks the user's questions; otherwise the last scan
    counts, and nothing is asked.
    """
    side = alias.candidate()
    own = settings_of(settings, side)
    queue = wiring.queue_on(driver, own)
    state = await wiring.inspect_schema(driver, own)
    report = None
    if state.problem is None and is_thorough:
        report = await _scanned(queue, side)
    elif state.problem is None:
        report, _ = await queue.reconciler(side.model).state()
    index = state.vector_index
    problem = state.problem or state.misfit(side.dimensions)
    found = [
        coverage_gate(report),
        Gate(
            "cutover_index",
            problem is None and index is not None,
            problem or f"{side.index} is online, {side.dimensions} dimensions",
        ),
        lengths_gate(report, side.dimensions),
        mock_gate(side, report),
    ]
    if is_thorough:
        from embed_pipeline.operations.grading import grade_sides

        live = settings_of(settings, alias.live)
        compared = await grade_sides(wiring.queue_on(driver, live), queue, (live, own))
        found.append(quality_gate(*compared))
    if is_thorough and problem is None and (questions := read_questions()):
        found.append(await ask_both(driver, settings, alias, questions))
    return found


async def go(
    driver: Driver,
    settings: Settings,
    *,
    operator: Operator | None = None,
    tell: Callable[[list[Gate]], None] = lambda _: None,
) -> tuple[Alias, list[Gate]]:
    """Make the candidate live, if every gate lets it; ``tell`` gets them in any case.

    Raises:
        CutoverError: a gate is red, or there is no candidate.
    """
    alias = await _known(driver, settings)
    if alias.phase is Phase.LIVE:
        return alias, []
    found = await gates(driver, settings, alias)
    tell(found)
    if red := [gate for gate in found if not gate.passed]:
        raise CutoverError(
            f"{alias.other} does not go live, {len(red)} of {len(found)} gates are red: "
            f"{'; '.join(map(str, red))}"
        )
    return await _flip(driver, settings, alias, Phase.LIVE, "go", operator), found


async def rollback(
    driver: Driver, settings: Settings, *, operator: Operator | None = None
) -> Alias:
    """Make the former side live again; it has been kept fresh.

    Raises:
        CutoverError: no candidate is live.
    """
    alias = await _known(driver, settings)
    if alias.phase is Phase.ROLLED_BACK:
        return alias
    alias.former()
    return await _flip(driver, settings, alias, Phase.ROLLED_BACK, "rollback", operator)


async def finish(
    driver: Driver,
    settings: Settings,
    *,
    grace: timedelta = GRACE,
    force: bool = False,
    keep_index_name: bool = False,
    operator: Operator | None = None,
) -> tuple[Side, int]:
    """Remove the side that is not live: its jobs, index and vectors. Says how many there were.

    ``keep_index_name``: the index of the model that is live now gets the name of the former one,
    for clients that know no other. They search it up to this moment, so there is no grace.

    Raises:
        CutoverError: it may still be searched.
    """
    alias = await _known(driver, settings)
    other = alias.other
    if other is None:
        raise CutoverError("no cut-over is under way: there is nothing to finish")
    if keep_index_name and alias.phase is Phase.FINISHING and not alias.takes:
        raise CutoverError("it is being finished without --keep-index-name; repeat it without")
    takes = other.index if keep_index_name and alias.phase is Phase.LIVE else None
    database = wiring.queue_on(driver, settings).database
    last_read, now = await read_use(database, other)
    why_not = why_not_to_finish(
        alias, now=now, last_read=last_read, grace=timedelta(0) if takes else grace
    )
    if alias.phase is not Phase.FINISHING:
        side = wiring.queue_on(driver, settings_of(settings, other))
        why_not = why_not or paid_for(await side.batches.every())
    if why_not and not force:
        raise CutoverError(f"not finished: {why_not}")
    changing = Neo4jAlias(database, settings.queue)
    alias = await changing.finishing(alias, takes=takes)
    live = wiring.queue_on(driver, settings_of(settings, alias.live))
    await _note(live, operator, f"finish: {other} removed, {alias.live} stays")
    if alias.takes:
        former = wiring.queue_on(driver, settings_of(settings, other))
        await take_names(live, alias.takes, former=former)
        other = (await changing.has_taken(alias)).other or other
    own = settings_of(settings, other)
    with suppress(ApocMissingError):
        await wiring.trigger_on(driver, own).drop()
    queue = wiring.queue_on(driver, own)
    removed = await remove_side(queue, is_own_queue=own.queue != settings.queue)
    await changing.finished(other)
    return other, removed


async def _known(driver: Driver, settings: Settings) -> Alias:
    alias = await read(driver, settings)
    if alias is None:
        raise CutoverError(
            "no cut-over is under way; begin one: embed-pipeline cutover start --model …"
        )
    return alias


async def _flip(
    driver: Driver,
    settings: Settings,
    seen: Alias,
    phase: Phase,
    step: str,
    operator: Operator | None,
) -> Alias:
    queue = wiring.queue_on(driver, settings)
    alias = await _alias(queue, settings).flip(seen, phase)
    live = wiring.queue_on(driver, settings_of(settings, alias.live))
    await _note(live, operator, f"{step}: {alias.live} is live, epoch {alias.epoch}")
    return alias


def _alias(queue: Queue, settings: Settings) -> Neo4jAlias:
    return Neo4jAlias(queue.database, settings.queue)


async def _note(queue: Queue, operator: Operator | None, said: str) -> None:
    if operator is not None:
        acting = queue.acting_as(operator)
        note = acting.audit.note(OperatorAction.CUTOVER, said)
        await acting.database.write(lambda tx: note.write(tx, 1))


async def _scanned(queue: Queue, side: Side) -> CoverageReport:
    scan = Scan.begin(queue.reconciler(side.model))
    await scan.go_on(dry_run=True)
    return scan.report
