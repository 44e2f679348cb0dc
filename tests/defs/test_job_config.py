"""The launchpad: what can be said there, what is refused, and that everything is explained."""

from typing import Any

import dagster as dg
import pytest

from tests.defs.conftest import Deployment, fresh_definitions
from tests.support.dagster_results import problem

SELECTION = {
    "preview": "Bool",
    "all_jobs": "Bool",
    "job_ids": "[String]",
    "entity_keys": "[String]",
    "model": "String",
    "categories": "[Category]",
    "older_than_hours": "Float",
}
FIELDS = {
    "drain_embed_queue": {
        "max_minutes": "Int",
        "max_jobs": "Int",
        "linger_seconds": "Int",
        "requests_at_once": "Int",
        "jobs_per_request": "Int",
        "jobs_per_lease": "Int",
        "mode": "String",
        "queue": "String",
    },
    "recover_stale_leases": {"limit": "Int", "dry_run": "Bool"},
    "retry_failed_jobs": SELECTION,
    "restore_cancelled_jobs": SELECTION,
    "cleanup_expired_jobs": {"retention_days": "Int", "dry_run": "Bool"},
    "cancel_jobs": {
        **SELECTION,
        "statuses": "[LiveStatus]",
        "owner": "String",
        "reason": "String",
    },
    "reconcile_embeddings": {
        "dry_run": "Bool",
        "page_size": "Int",
        "force": "Bool",
        "entity_type": "String",
        "model": "String",
        "older_than_days": "Float",
        "accept_cost": "Bool",
    },
    "initialise_schema": {"change_model": "Bool"},
    "pause_queue": {},
    "resume_queue": {"close_breaker": "Bool"},
    "clear_limits": {},
    "collect_batches": {},
    "release_leases_of_run": {"run_id": "String", "count_attempts": "Bool"},
    "explain_entity": {"entity": "String"},
    "cutover_start": {
        "model": "String",
        "provider": "String",
        "dimensions": "Int",
        "preview": "Bool",
    },
    "cutover_status": {},
    "cutover_go": {},
    "cutover_rollback": {},
    "cutover_finish": {"grace_minutes": "Int", "force": "Bool", "keep_index_name": "Bool"},
    "prune_old_runs": {"days": "Int", "dry_run": "Bool"},
}
"""All that a run config can say: no Cypher, no address, no secret."""


@pytest.fixture
def defs(monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    return fresh_definitions()


def op_of(job: dg.JobDefinition) -> dg.OpDefinition:
    [node] = job.nodes
    assert isinstance(node.definition, dg.OpDefinition)
    return node.definition


def config_of(job: dg.JobDefinition) -> dict[str, dg.Field]:
    kind = op_of(job).config_schema.config_type
    return dict(kind.fields) if isinstance(kind, dg.Shape) else {}


def type_of(field: dg.Field) -> str:
    """The type's name without the wrappers that say that it may be empty or a variable."""
    name = field.config_type.key.removeprefix("Noneable.").removesuffix("SourceType")
    return f"[{name.removeprefix('Array.')}]" if name.startswith("Array.") else name


def jobs_of(defs: dg.Definitions) -> list[dg.JobDefinition]:
    return [defs.resolve_job_def(name) for name in FIELDS]


def test_these_fields_can_be_set_and_no_others(defs: dg.Definitions) -> None:
    assert {job.name for job in defs.jobs or ()} == FIELDS.keys()
    assert {
        job.name: {name: type_of(field) for name, field in config_of(job).items()}
        for job in jobs_of(defs)
    } == FIELDS


def test_every_job_op_and_field_is_described(defs: dg.Definitions) -> None:
    silent = [job.name for job in jobs_of(defs) if not job.description]
    silent += [op_of(job).name for job in jobs_of(defs) if not op_of(job).description]
    silent += [
        f"{job.name}.{name}"
        for job in jobs_of(defs)
        for name, field in config_of(job).items()
        if not field.description
    ]

    assert silent == []


def test_every_job_but_two_can_be_launched_as_it_is(defs: dg.Definitions) -> None:
    required = [
        f"{job.name}.{name}"
        for job in jobs_of(defs)
        for name, field in config_of(job).items()
        if field.is_required
    ]

    assert required == ["release_leases_of_run.run_id", "explain_entity.entity"]
    for job in jobs_of(defs):
        if job.name not in ("release_leases_of_run", "explain_entity"):
            dg.validate_run_config(job, {})


OUT_OF_BOUNDS = [
    ("drain_embed_queue", "max_minutes", 0, "greater than or equal to 1"),
    ("drain_embed_queue", "max_minutes", 721, "less than or equal to 720"),
    ("drain_embed_queue", "max_jobs", 0, "greater than or equal to 1"),
    ("drain_embed_queue", "linger_seconds", -1, "greater than or equal to 0"),
    ("drain_embed_queue", "linger_seconds", 3601, "less than or equal to 3600"),
    ("drain_embed_queue", "requests_at_once", 0, "greater than or equal to 1"),
    ("drain_embed_queue", "requests_at_once", 65, "less than or equal to 64"),
    ("drain_embed_queue", "jobs_per_request", 0, "greater than or equal to 1"),
    ("drain_embed_queue", "jobs_per_request", 2049, "less than or equal to 2048"),
    ("drain_embed_queue", "jobs_per_lease", 0, "greater than or equal to 1"),
    ("drain_embed_queue", "jobs_per_lease", 2049, "less than or equal to 2048"),
    ("recover_stale_leases", "limit", 0, "greater than or equal to 1"),
    ("cleanup_expired_jobs", "retention_days", 6, "greater than or equal to 7"),
    ("cleanup_expired_jobs", "retention_days", 31, "less than or equal to 30"),
    ("retry_failed_jobs", "older_than_hours", -0.5, "greater than or equal to 0"),
    ("retry_failed_jobs", "older_than_hours", 8760.5, "less than or equal to 8760"),
    ("retry_failed_jobs", "model", "m" * 129, "at most 128 characters"),
    ("cancel_jobs", "owner", "o" * 257, "at most 256 characters"),
    ("cancel_jobs", "reason", "r" * 501, "at most 500 characters"),
    ("reconcile_embeddings", "page_size", 0, "greater than or equal to 1"),
    ("reconcile_embeddings", "page_size", 10001, "less than or equal to 10000"),
    ("release_leases_of_run", "run_id", "short", "should match pattern"),
    ("release_leases_of_run", "run_id", "every run, or 1=1", "should match pattern"),
    ("prune_old_runs", "days", 0, "greater than or equal to 1"),
    ("prune_old_runs", "days", 3651, "less than or equal to 3650"),
]
MEANT = {"retry_failed_jobs": {"preview": False}, "cancel_jobs": {"preview": False}}
"""So that a value that gets through does something."""


async def test_a_value_out_of_bounds_is_refused_before_anything_is_changed(
    deployment: Deployment,
) -> None:
    await deployment.queue.leased("ada")
    before = await deployment.queue.nodes()

    for job, field, value, bounds in OUT_OF_BOUNDS:
        said = problem(await deployment.run(job, {**MEANT.get(job, {}), field: value}))

        assert f"Failure: the run config is refused: {field}: " in said, (job, field, value)
        assert bounds in said, (job, field, value)
        assert repr(value) not in said, (job, field, value)

    assert await deployment.queue.nodes() == before


NOT_IN_THE_SCHEMA: list[tuple[str, dict[str, Any], list[str]]] = [
    ("retry_failed_jobs", {"categories": ["FATAL"]}, ["categories", "FATAL"]),
    ("cancel_jobs", {"statuses": ["COMPLETED"]}, ["statuses", "COMPLETED"]),
    ("cancel_jobs", {"cypher": "MATCH (n) DETACH DELETE n"}, ["cypher", "unexpected config entry"]),
    ("drain_embed_queue", {"max_jobs": "many"}, ["max_jobs", "many"]),
    ("release_leases_of_run", {"count_attempts": True}, ["run_id", "Missing required"]),
]


@pytest.mark.parametrize(("job", "config", "words"), NOT_IN_THE_SCHEMA)
def test_what_the_schema_does_not_have_cannot_be_launched(
    defs: dg.Definitions, job: str, config: dict[str, Any], words: list[str]
) -> None:
    definition = defs.resolve_job_def(job)

    with pytest.raises(dg.DagsterInvalidConfigError) as refusal:
        dg.validate_run_config(definition, {"ops": {op_of(definition).name: {"config": config}}})

    said = str(refusal.value)
    assert [word for word in words if word not in said] == []
