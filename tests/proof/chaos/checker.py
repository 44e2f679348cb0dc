"""Judges a run from its history and the graph it left; pure.

Each rule yields a sentence per violation. What was applied is read from the audit in the graph,
which committed together with the writes; what a killed process did not say is in doubt, and counts
for neither side.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Final

from tests.proof.chaos.evidence import Evidence, Facts
from tests.proof.chaos.plan import RECOVERY_INTERVAL, TRANSACTION_TIMEOUT
from tests.proof.chaos.text_rules import (
    never_current,
    other_words,
    own_words_lost,
    stale_vectors,
    two_texts,
)
from tests.proof.chaos.texts import DIMENSIONS
from tests.support.queue_harness import assert_consistent

Rule = Callable[[Evidence], Iterator[str]]

LATEST_RECOVERY: Final = RECOVERY_INTERVAL + TRANSACTION_TIMEOUT
TERMINAL: Final = ("completed", "failed", "cancelled")
PENDING: Final = ("pending", "processing")
MARKS: Final = {"lock_owner", "lock_until", "ready_at", "suspect_at", "run_after", "processed_at"}


def lost_jobs(run: Evidence) -> Iterator[str]:
    """Every acknowledged write has its job, or it was cleaned up (I6, I7, I13, M51)."""
    there = Counter((job["entity_uid"], job["version"]) for job in run.graph.jobs)
    gone = {(job["entity_uid"], job["version"]) for job in run.graph.purged}
    yield from (f"{key} has no job" for key in sorted(run.wanted - there.keys() - gone))
    yield from (f"{key} has {count} jobs" for key, count in there.items() if count > 1)
    for key in (there.keys() | gone) - run.wanted - run.doubtful.keys():
        yield f"nobody asked for the job of {key}"


def lost_writes(run: Evidence) -> Iterator[str]:
    """Every entity is as its last acknowledged write left it (I13)."""
    there = {entity["name"]: entity for entity in run.graph.entities}
    for uid, row in run.last_written.items():
        entity = there.get(uid)
        if row["is_deleted"]:
            if entity is not None:
                yield f"{uid} is back after it was deleted"
        elif entity is None:
            yield f"{uid} is gone"
        elif (entity["version"], entity["observations"]) != (row["version"], [row["text"]]):
            yield f"{uid} is not what was written last"


def applied_twice(run: Evidence) -> Iterator[str]:
    """Each lease writes at most one vector, and each life of a job too (I4, M52)."""
    for uid, writes in run.writes.items():
        pairs = Counter((id_, fence) for id_, fence, _ in writes)
        yield from (f"{uid}: {pair} wrote {n} vectors" for pair, n in pairs.items() if n > 1)
        lives = Counter((id_, version) for id_, _, version in writes)
        for (id_, version), count in lives.items():
            if count > 1 + run.reopenings[uid, version]:
                yield f"{uid}: job {id_} wrote {count} vectors in fewer lives"


def stale_writers(run: Evidence) -> Iterator[str]:
    """Who was told that a lease is completed had the current one, and nobody else wrote (I2)."""
    written = {(id_, fence) for writes in run.writes.values() for id_, fence, _ in writes}
    asked = {pair for what, pair, _ in run.outcomes if what == "complete"}
    yield from (f"{pair} wrote a vector and never asked" for pair in sorted(written - asked))
    there = run.writes.keys()
    deleted = {e["rows"][0]["uid"] for e in run.of("write") if e["kind"] == "delete"}
    told = {pair for what, pair, word in run.outcomes if (what, word) == ("complete", "completed")}
    for pair in sorted(told - written):
        if (uid := run.uid_of.get(pair[0])) in there and uid not in deleted:
            yield f"{uid}: {pair} is said to be completed, but it did not hold the job"


def bad_vectors(run: Evidence) -> Iterator[str]:
    """Only finite vectors of the right length that are not zero are stored (I17)."""
    for entity in run.graph.entities:
        vector = entity.get("embedding")
        if vector is None:
            continue
        norm = math.hypot(*vector)
        if len(vector) != DIMENSIONS or not math.isfinite(norm) or norm == 0:
            yield f"{entity['name']} has the vector {vector}"


def versions_back(run: Evidence) -> Iterator[str]:
    """The version of the stored vector never falls (I5)."""
    for uid, writes in run.writes.items():
        versions = [version for _, _, version in writes]
        if versions != sorted(versions):
            yield f"{uid} got vectors of versions {versions}"


def fences(run: Evidence) -> Iterator[str]:
    """A fence is given out once and rises (I1, M32)."""
    for id_, leases in run.leases.items():
        for first, then in pairwise(leases):
            if first["fence"] == then["fence"]:
                yield f"job {id_}: fence {then['fence']} went to {first['who']} and {then['who']}"
            elif first["until"] >= then["until"]:
                yield f"job {id_}: fence {then['fence']} is older than {first['fence']}"
        job = run.all_jobs.get(id_)
        if job is not None and job["fence"] < leases[-1]["fence"]:
            yield f"job {id_}: fence fell from {leases[-1]['fence']} to {job['fence']}"


def attempts(run: Evidence) -> Iterator[str]:
    """Attempts are leases less refunds, per life of the job (I8)."""
    for id_, job in run.all_jobs.items():
        is_reopened = run.reopenings[job["entity_uid"], job["version"]] > 0
        seen: Facts = {"fence": 0, "attempts": 0}
        end = {"fence": job["fence"] + 1, "attempts": job["attempts"] + 1}
        for then in [*run.leases.get(id_, []), end]:
            steps = range(seen["fence"], then["fence"])
            high = seen["attempts"] + len(steps)
            high -= sum((id_, fence) in run.refunds for fence in steps)
            low = high - sum((id_, fence) in run.doubtful_refunds for fence in steps)
            low -= run.edits[id_]
            is_new_life = is_reopened and 1 <= then["attempts"] <= len(steps)
            if not low <= then["attempts"] <= high and not is_new_life:
                yield (
                    f"job {id_}: {then['attempts'] - 1} attempts before fence {then['fence']}, "
                    f"expected {low - 1} to {high - 1}"
                )
            seen = then


def over_max(run: Evidence) -> Iterator[str]:
    """No job is tried more often than it may be (I8)."""
    for id_, leases in run.leases.items():
        for lease in leases:
            if lease["attempts"] > lease["max"]:
                yield f"job {id_} was leased for attempt {lease['attempts']} of {lease['max']}"
    for id_, job in run.all_jobs.items():
        if job["attempts"] > job["max_attempts"]:
            yield f"job {id_} has {job['attempts']} of {job['max_attempts']} attempts"


def innocents_failed(run: Evidence) -> Iterator[str]:
    """A poisonous job fails nobody else (I9, I20)."""
    failed = {pair[0] for what, pair, word in run.outcomes if what == "fail" and word == "failed"}
    failed |= {job["id"] for job in run.recoveries if job["status"] == "failed"}
    failed |= {id_ for id_, job in run.all_jobs.items() if job["status"] == "failed"}
    for id_ in sorted(failed - run.unlucky):
        if (uid := run.uid_of.get(id_)) not in run.special:
            job = run.all_jobs.get(id_, {})
            yield f"{uid} failed: {job.get('error_history') or job.get('error')}"


def poison(run: Evidence) -> Iterator[str]:
    """A text that kills its worker, or is refused, ends failed (I9, M25)."""
    jobs = {job["entity_uid"]: job for job in run.all_jobs.values()}
    for uid in sorted(run.special):
        job = jobs.get(uid)
        if job is None or job["status"] != "failed":
            yield f"{uid} is {job and job['status']}"
        elif uid in run.killers and job["attempts"] != job["max_attempts"]:
            yield f"{uid} failed after {job['attempts']} of {job['max_attempts']} attempts"
        elif (
            uid in run.refused
            and job["error_category"] != "PERMANENT"
            and job["id"] not in run.unlucky
        ):
            yield f"{uid} failed with {job['error_category']}"


def stuck(run: Evidence) -> Iterator[str]:
    """When all is quiet, nothing is left undone (M26)."""
    for job in run.graph.jobs:
        if job["status"] in PENDING:
            yield f"{job['entity_uid']} is {job['status']} after {job['attempts']} attempts"


def early_recoveries(run: Evidence) -> Iterator[str]:
    """A live lease is never taken away (I11, M13)."""
    for job in run.recoveries:
        if job["at"] <= job["until"]:
            yield f"{job['uid']} was recovered {job['until'] - job['at']} ms before its expiry"


def late_recoveries(run: Evidence) -> Iterator[str]:
    """Nothing is processing later than expiry, interval and transaction timeout (I10)."""
    bound = LATEST_RECOVERY / timedelta(milliseconds=1)
    for job in run.recoveries:
        if (late := run.lateness(job)) > bound:
            yield f"{job['uid']} was recovered {late} ms after its expiry; allowed are {bound:g}"


def wrong_purges(run: Evidence) -> Iterator[str]:
    """Cleaning up takes finished jobs only (I14)."""
    for job in run.graph.purged:
        if job["status"] not in TERMINAL:
            yield f"{job['entity_uid']} was cleaned up while {job['status']}"


def inconsistent_jobs(run: Evidence) -> Iterator[str]:
    """What every reader may rely on: labels, locks, lanes (M50)."""
    for job in run.graph.jobs:
        try:
            assert_consistent([job])
        except AssertionError:
            marks = sorted({*job["labels"], *(job.keys() & MARKS)})
            yield f"{job['entity_uid']} is {job['status']} with {', '.join(marks)}"


RULES: Final[dict[str, Rule]] = {
    "lost job": lost_jobs,
    "lost write": lost_writes,
    "applied twice": applied_twice,
    "stale writer": stale_writers,
    "stale vector": stale_vectors,
    "text that never was": never_current,
    "other words": other_words,
    "own words lost": own_words_lost,
    "pieces of two texts": two_texts,
    "bad vector": bad_vectors,
    "version went back": versions_back,
    "fence": fences,
    "attempts": attempts,
    "over max": over_max,
    "innocent failed": innocents_failed,
    "poison": poison,
    "stuck": stuck,
    "recovered early": early_recoveries,
    "recovered late": late_recoveries,
    "cleaned up wrongly": wrong_purges,
    "inconsistent job": inconsistent_jobs,
}


def check(run: Evidence) -> dict[str, list[str]]:
    """All violations by rule; empty lists where there is none."""
    return {name: list(rule(run)) for name, rule in RULES.items()}
