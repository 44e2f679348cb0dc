"""The last lines of a run: what was done to the queue, and what came of it."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta

from tests.proof.chaos.evidence import Evidence
from tests.proof.chaos.history import ANSWER, ERROR
from tests.proof.chaos.plan import Fault

SHOWN = 20
"""Violations per rule; all of them are in the history."""


def figures(
    run: Evidence,
    found: Mapping[str, list[str]],
    *,
    wall: timedelta,
    provider: Mapping[str, int],
) -> Iterator[str]:
    """A table of two columns: what was done, what came of it, and how often each rule broke."""
    for name, value in _rows(run, wall, provider):
        yield f"{name:<48} {value}"
    for rule, lines in found.items():
        yield f"{rule:<48} {len(lines)}"


def violations(found: Mapping[str, list[str]]) -> Iterator[str]:
    """One line per violation, at most ``SHOWN`` per rule."""
    for rule, lines in found.items():
        yield from (f"VIOLATION {rule}: {line}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"VIOLATION {rule}: … and {len(lines) - SHOWN} more"


def _rows(
    run: Evidence, wall: timedelta, provider: Mapping[str, int]
) -> Iterator[tuple[str, object]]:
    states = Counter(job["status"] for job in run.graph.jobs)
    yield "jobs", len(run.all_jobs)
    yield "  of them at the end", ", ".join(f"{n} {s}" for s, n in sorted(states.items()))
    yield "  of them cleaned up", len(run.graph.purged)
    writes = Counter(e["kind"] for e in run.of("write", ANSWER))
    yield "updates, deletes", f"{writes['update']}, {writes['delete']}"
    edits = Counter(e["kind"] for e in run.of("relation", ANSWER))
    said = ", ".join(f"{edits[kind]} {kind}" for kind in ("add", "remove", "rename"))
    yield "edits of relations", said
    revived = Counter(e["is_put_off"] for e in run.of("revived"))
    yield "jobs begun anew by scans, and put off", f"{revived.total()}, {revived[True]}"
    in_pieces = sum(len(entity["pieces"]) > 1 for entity in run.graph.entities)
    pieces = sum(len(entity["pieces"]) for entity in run.graph.entities)
    yield "texts in pieces, pieces", f"{in_pieces}, {pieces}"
    yield "looks at an entity and its pieces", sum("name" in e for e in run.of("look"))
    yield "writes in doubt", len(list(run.of("write", ERROR)))
    done = Counter(event["fault"] for event in run.of("fault"))
    for fault in Fault:
        yield fault.value, done[fault.name]
    yield "drains killed by poison", len(list(run.of("poisoned")))
    yield "drains ended by an error of theirs", _exits(run)["error"]
    yield "provider faults", ", ".join(f"{n} {w}" for w, n in sorted(provider.items())) or 0
    yield from _effects(run)
    yield "wall time", f"{wall.total_seconds():.0f} s"


def _effects(run: Evidence) -> Iterator[tuple[str, object]]:
    yield "leases, vectors written", f"{_leases(run)}, {sum(map(len, run.writes.values()))}"
    words = Counter(word for _, _, word in run.outcomes)
    yield "writes fenced", words["fenced"]
    yield "texts that changed meanwhile", words["moved"]
    yield "jobs given back untried", words["released"] + words["given_back"]
    yield "outcomes that nobody heard of", words[None]
    yield "leases recovered", len(run.recoveries)
    dark = sum(until - since for since, until in run.blackouts)
    yield "server dead or slower than a second", f"{dark / 1000:.0f} s"
    late = sorted(run.lateness(job) for job in run.recoveries)
    if late:
        p50 = statistics.median(late)
        yield "lateness of recovery, p50 and max", f"{p50:.0f} ms, {late[-1]} ms"


def _leases(run: Evidence) -> int:
    return sum(job["fence"] for job in run.all_jobs.values())


def _exits(run: Evidence) -> Counter[str]:
    return Counter(event["kind"] for event in run.of("exit"))
