"""The operator's commands, through the real command line, on a Neo4j of their own."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from neo4j import Driver, GraphDatabase

from embed_pipeline.devserver.temporary import temporary_server
from tests.conftest import QUICK, SMALL
from tests.support.memento import chained, remember
from tests.support.openai_server import (
    KEY,
    OpenAIServer,
    but_not_to_the_probe,
    failure,
    openai_server,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import Project

ENTITIES = 329
DIMENSIONS = 256
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A folder whose settings lead to a prepared server, with the local model as provider."""
    with temporary_server(memory=SMALL, tuning=QUICK) as server:
        made = Project(
            tmp_path_factory.mktemp("project"),
            {
                "NEO4J_URI": server.uri,
                "NEO4J_USERNAME": server.username,
                "NEO4J_PASSWORD": server.password,
                "EMBED_JOB_RETENTION_DAYS": "14",
                "EMBEDDING_PROVIDER": "local-fast",
                "EMBEDDING_RATE_LIMIT_TOKENS": "20",
                "EMBEDDING_RATE_LIMIT_NAME": "default",
            },
        )
        assert made.run("init").returncode == 0
        yield made


@pytest.fixture(scope="module")
def driver(project: Project) -> Iterator[Driver]:
    auth = (project.environment["NEO4J_USERNAME"], project.environment["NEO4J_PASSWORD"])
    with GraphDatabase.driver(project.environment["NEO4J_URI"], auth=auth) as opened:
        yield opened


@pytest.fixture
def database(driver: Driver) -> Driver:
    """The schema, an open queue and nothing else."""
    driver.execute_query("MATCH (n) WHERE n:Entity OR n:EmbedJob OR n:EmbedLimiter DETACH DELETE n")
    driver.execute_query(
        "MATCH (q:EmbedQueue) SET q = {name: q.name, slots: 0, turns: 0, paused: false, "
        "breaker: 'closed'}"
    )
    return driver


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


def through(provider: OpenAIServer, *, key: str = KEY) -> dict[str, str]:
    """The settings that lead to the provider; its vectors are as long as those of the index."""
    return {
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "OPENAI_API_KEY": key,
        "OPENAI_BASE_URL": provider.base_url,
        "EMBEDDING_PROFILE": "openai",
    }


def add_entities(database: Driver, *names: str, observations: str = "A fact.") -> None:
    """Somebody's memory server writes them, each related to the next."""
    entities = [
        {"name": name, "entityType": "thing", "observations": [observations]} for name in names
    ]
    remember(database.execute_query, entities, chained(list(names)))


def jobs_of(database: Driver) -> list[dict]:
    found = database.execute_query("MATCH (j:EmbedJob) RETURN j {.*} AS j ORDER BY j.entity_uid")
    return [record["j"] for record in found.records]


def test_from_the_sample_graph_to_a_search_that_finds_a_sensible_entity(
    project: Project, database: Driver
) -> None:
    said = [project.run("sample", "load")]
    said += [project.run("search", "relativity")]
    assert "Nothing is embedded with this model yet" in said[-1].stdout

    said += [project.run("reconcile", "--page-size", "100")]
    assert f"Entities {ENTITIES} current 0 missing {ENTITIES}" in said[-1].stdout
    assert f"Enqueued {ENTITIES} created" in said[-1].stdout
    said += [project.run("search", "relativity")]
    assert f"{ENTITIES} jobs under way" in said[-1].stdout

    said += [project.run("drain")]
    assert f"Completed {ENTITIES} (" in said[-1].stdout
    assert "Failed 0 Given back 0" in said[-1].stdout
    assert "Ended because nothing left to do" in said[-1].stdout

    said += [project.run("status", "--coverage")]
    assert f"Queue open Pending 0 Processing 0 Completed {ENTITIES} Failed 0" in said[-1].stdout
    assert f"{ENTITIES} of {ENTITIES} entities are current" in said[-1].stdout

    said += [project.run("search", "the woman who wrote the first algorithm", "--limit", "5")]
    assert "Ada Lovelace person" in said[-1].stdout

    said += [project.run("search", "the woman who wrote the first algorithm", "--json")]
    ada = next(hit for hit in json.loads(said[-1].stdout) if hit["uid"] == "Ada Lovelace")
    assert ada["type"] == "person"
    assert ada["text"].startswith("Name: Ada Lovelace\nType: person\nObservations:\n- ")

    said += [project.run("reconcile", "--dry-run")]
    assert f"current {ENTITIES} missing 0" in said[-1].stdout

    assert [result.returncode for result in said] == [0] * len(said)
    assert not CONTROL.search("".join(result.stdout + result.stderr for result in said))


def test_a_wrong_key_is_one_clear_line_an_open_breaker_and_no_lost_job(
    project: Project, database: Driver, provider: OpenAIServer
) -> None:
    add_entities(database, "a", "b", "c")
    wrong = through(provider, key="sk-hunter2-hunter2")
    project.run("reconcile", **wrong)

    refused = project.run("drain", **wrong)
    shown = project.run("status", **wrong)
    reading = json.loads(project.run("status", "--json", **wrong).stdout)
    closed = project.run("drain", **wrong)

    assert refused.returncode == 1
    assert refused.stderr.startswith("✗ The drain gave up, nothing can work until somebody acts")
    assert "AuthenticationError" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stderr.count("✗") == 1
    assert "Breaker open since 20" in shown.stdout
    assert "AuthenticationError" in shown.stdout
    assert "one job may be tried in" in shown.stdout
    assert reading["state"]["breaker"]["status"] == "open"
    assert reading["counts"]["pending"] == 3
    assert closed.returncode == 0
    assert "the queue gives out no jobs: breaker open" in closed.stdout
    assert "hunter2" not in refused.stdout + refused.stderr + shown.stdout + closed.stdout
    assert [(job["status"], job["attempts"]) for job in jobs_of(database)] == [("pending", 0)] * 3

    right = through(provider)
    assert "gives out jobs" in project.run("resume", "--close-breaker", **right).stdout
    assert "Completed 3 (" in project.run("drain", **right).stdout


def test_sigterm_gives_back_what_has_not_started_and_finishes_what_has(
    project: Project, database: Driver, provider: OpenAIServer
) -> None:
    # Of texts this long 37 fill a request, so that some jobs wait for the next one.
    names = [f"long {number}" for number in range(50)]
    add_entities(database, *names, observations="fact " * 8_000)
    variables = through(provider)
    project.run("reconcile", **variables)
    provider.gate.clear()
    drain = subprocess.Popen(
        project.command("drain", "--watch", "--concurrency", "1"),
        cwd=project.folder,
        env=project.variables(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: bool(provider.requests), drain)

    drain.send_signal(signal.SIGTERM)
    wait_until(lambda: status_count(database, "pending") > 0, drain)
    drain.send_signal(signal.SIGINT)
    said = read_until(drain, "Still giving jobs back")
    provider.gate.set()
    said += drain.communicate(timeout=PATIENCE_SECONDS)[0]

    in_flight = len(provider.requests[0]["input"])
    assert drain.returncode == 0, said
    assert "Stopping: no new jobs" in said
    assert "Still giving jobs back" in said
    assert "it was told to stop" in said
    assert not CONTROL.search(said)
    states = [(job["status"], job["attempts"]) for job in jobs_of(database)]
    assert states.count(("completed", 1)) == in_flight
    assert states.count(("pending", 0)) == 50 - in_flight > 0
    assert all("lock_owner" not in job for job in jobs_of(database))


def test_a_drain_in_which_everything_failed_says_why_and_ends_with_an_error(
    project: Project, database: Driver, provider: OpenAIServer
) -> None:
    add_entities(database, "ada", "bob")
    project.run("reconcile", **through(provider))
    oops = failure(500, f"oops, key {KEY}", None)
    provider.answer_with = but_not_to_the_probe(lambda _: oops)

    drained = project.run("drain", **through(provider))

    error = "2 TRANSIENT: InternalServerError: Error code: 500 - oops, key ***"
    assert drained.returncode == 1
    assert "To be tried again 2" in drained.stdout
    assert f"Error {error}" in drained.stdout
    assert f"completed nothing: 0 failed, 2 to be tried again ({error})" in drained.stderr
    assert "Traceback" not in drained.stderr


def test_failed_jobs_are_found_shown_and_retried_but_not_by_a_preview(
    project: Project, database: Driver, provider: OpenAIServer
) -> None:
    add_entities(database, "evil\x1b[2J", "good", observations="fine")
    variables = through(provider)
    project.run("reconcile", **variables)
    provider.answer_with = lambda body: (
        failure(400, "This text [is] bad", None)
        if any("evil" in t for t in body["input"])
        else None
    )
    assert "Failed 1 PERMANENT" in project.run("drain", **variables).stdout
    failed, _ = before = jobs_of(database)

    listed = project.run("jobs", "list", "--status", "failed", "--category", "permanent")
    shown = project.run("jobs", "show", failed["id"])
    plain = project.run("jobs", "list", "--entity", "good", "--json")
    usual = project.run("jobs", "retry", "--all", "--preview")
    preview = project.run("jobs", "retry", "--category", "PERMANENT", "--preview")
    unasked = project.run("jobs", "retry", "--category", "PERMANENT")

    assert failed["id"] in listed.stdout
    assert "PERMANENT: BadRequestError" in listed.stdout
    assert "This text [is] bad" in shown.stdout
    assert not CONTROL.search(listed.stdout + shown.stdout)
    assert [job["status"] for job in json.loads(plain.stdout)] == ["completed"]
    assert "Would retry no jobs (PERMANENT failures need" in usual.stdout
    assert f"Would retry 1 job (1 failed); nothing was changed {failed['id']}" in preview.stdout
    assert unasked.returncode == 1
    assert "repeat with --yes" in unasked.stderr
    assert jobs_of(database) == before

    retried = project.run("jobs", "retry", failed["id"])
    again = project.run("jobs", "retry", failed["id"])

    assert "✓ 1 job pending again" in retried.stdout
    assert jobs_of(database)[0]["status"] == "pending"
    assert again.returncode == 1
    assert "it is pending, not failed" in again.stderr


def test_enqueue_says_what_it_did_and_cancel_asks_first(project: Project, database: Driver) -> None:
    add_entities(database, "a", "b", "c")

    first = project.run("enqueue", "a", "b")
    second = subprocess.run(
        project.command("enqueue", "--stdin", "--priority", "5"),
        cwd=project.folder,
        env=project.variables(),
        input="a\nc\n",
        capture_output=True,
        text=True,
        check=True,
    )
    unknown = project.run("enqueue", "a", "nobody")

    assert first.stdout == "created a created b ✓ 2 created"
    assert "✓ 1 created, 1 promoted" in second.stdout
    assert unknown.returncode == 1
    assert "no current Entity has the name 'nobody'; nothing was enqueued" in unknown.stderr
    before = jobs_of(database)
    assert [job["priority"] for job in before] == [5, 0, 5]

    preview = project.run("jobs", "cancel", "--status", "pending", "--preview")
    unasked = project.run("jobs", "cancel", "--entity", "a", "--entity", "b")
    vague = project.run("jobs", "cancel")

    assert "Would cancel 3 jobs (3 pending); nothing was changed" in preview.stdout
    assert unasked.returncode == 1
    assert "Cancel 2 jobs (2 pending)?" in unasked.stderr
    assert vague.returncode == 2
    assert jobs_of(database) == before

    done = project.run("jobs", "cancel", "--entity", "a", "--yes", "--reason", "not wanted")
    forced = project.run("enqueue", "a", "--force")

    assert "✓ 1 job cancelled" in done.stdout
    assert "✓ 1 revived" in forced.stdout


def test_a_paused_queue_gives_nothing_and_says_who_paused_it(
    project: Project, database: Driver
) -> None:
    add_entities(database, "a")
    project.run("enqueue", "a")

    paused = project.run("pause")
    drained = project.run("drain")
    shown = project.run("status")
    resumed = project.run("resume")
    after = project.run("drain", "--max-jobs", "1", "--max-seconds", "60")

    assert paused.returncode == 0
    assert drained.returncode == 0
    assert "the queue gives out no jobs: paused by" in drained.stdout
    assert "Paused since 20" in shown.stdout
    assert "on the command line" in shown.stdout
    assert "✓ The queue gives out jobs" in resumed.stdout
    assert "Completed 1 (" in after.stdout


def test_a_pause_of_the_provider_is_shown_with_its_origin_and_ended_by_hand(
    project: Project, database: Driver
) -> None:
    database.execute_query(
        "WITH datetime.realtime().epochMillis AS now CREATE (:EmbedLimiter {name: 'default', "
        "not_before: now + 600000, held_at: now, hold_asked: 600000, hold_queue: 'acme', "
        "hold_owner: 'run-7/host/1', hold_said: 'slow down', starts: [now], requests: [3], "
        "tokens: [41]})"
    )
    origin = "the provider told run-7/host/1 of queue acme to wait until 20"

    shown, status, doctor = project.run("limits"), project.run("status"), project.run("doctor")
    as_json = json.loads(project.run("limits", "--json").stdout)
    would, asked = project.run("limits", "clear", "--preview"), project.run("limits", "clear")
    still = project.run("limits")
    done, again = project.run("limits", "clear", "--yes"), project.run("limits", "clear", "--yes")
    after = project.run("limits")

    assert "Name default Allowed 20 requests in 1 min Used 3 requests, 41 tokens" in shown.stdout
    assert all(origin in text.stdout for text in (shown, status, doctor, would, still, done))
    assert "Held for 10 min" in status.stdout
    assert "! Rate limit" in doctor.stdout
    assert as_json["hold"]["origin"]["said"] == "slow down"
    assert "nothing was changed" in would.stdout
    assert asked.returncode == 1
    assert "repeat with --yes" in asked.stderr
    assert done.stdout.startswith("✓ Ended: ")
    assert "▸ The provider has asked for no pause; nothing was changed" in again.stdout
    assert "Used 3 requests" in after.stdout
    assert "Next request now" in after.stdout
    looked = project.run("doctor").stdout
    assert "✓ Rate limit default, 20 requests in 1 min, 3 requests used" in looked


def test_recover_release_and_cleanup_touch_only_what_they_should(
    project: Project, database: Driver
) -> None:
    add_entities(database, *"abcd")
    project.run("enqueue", *"abcd")
    hold(database, "a", owner="dead/host/1", seconds=-5)
    hold(database, "b", owner="alive/host/2", seconds=300)
    end(database, "c", days_ago=15)
    end(database, "d", days_ago=13)

    would = project.run("cleanup", "--dry-run")
    assert "Would delete 1 job that ended more than 14 days ago" in would.stdout
    assert len(jobs_of(database)) == 4

    overdue, listed = project.run("status"), project.run("recover", "--dry-run")
    assert "dead/host/1" in listed.stdout
    assert "▸ Would recover 1 job" in listed.stdout
    assert "Expired leases 1" in project.run("status").stdout
    recovered = project.run("recover")
    released = project.run("jobs", "release", "--owner", "alive")
    cleaned = project.run("cleanup")

    assert "Expired leases 1, the oldest for" in overdue.stdout
    assert "a dead/host/1" in recovered.stdout
    assert "✓ 1 job recovered" in recovered.stdout
    assert "✓ 1 job given back" in released.stdout
    assert "✓ 1 job that ended more than 14 days ago deleted, through APOC" in cleaned.stdout
    found = [(job["entity_uid"], job["status"], job["attempts"]) for job in jobs_of(database)]
    assert found == [("a", "pending", 1), ("b", "pending", 0), ("d", "completed", 0)]


def test_init_installs_and_drops_the_trigger(project: Project, database: Driver) -> None:
    installed = project.run("init", "--with-triggers")
    add_entities(database, "seen")
    wait_until(lambda: len(jobs_of(database)) == 1)

    dropped = project.run("init", "--without-triggers")

    assert "✓ The trigger enqueues every change for wordllama-256" in installed.stdout
    assert "✓ No trigger" in dropped.stdout


def test_commands_say_what_is_wrong_with_the_index_and_with_mock_vectors(
    project: Project, database: Driver
) -> None:
    mock = {"EMBEDDING_PROVIDER": "mock"}

    mismatch = project.run("drain", **mock)
    found = project.run("doctor", "--json", **mock)
    warned = project.run("search", "anything", **mock, EMBEDDING_DIMENSIONS=str(DIMENSIONS))

    assert mismatch.returncode == 5
    assert "256 dimensions" in mismatch.stderr
    assert "init --change-model" in mismatch.stderr
    assert found.returncode == 5
    [bad] = [finding for finding in json.loads(found.stdout) if finding["mark"] == "bad"]
    assert bad["subject"] == "Vector index"
    assert "256 dimensions" in bad["detail"]
    assert "init --change-model" in bad["remedy"]
    assert warned.returncode == 0
    assert "MOCK vectors" in warned.stderr


def hold(database: Driver, uid: str, *, owner: str, seconds: int) -> None:
    """A worker holds the job of an entity; negative seconds: its lease has expired."""
    database.execute_query(
        "MATCH (j:EmbedJob {entity_uid: $uid}) SET j:EmbedProcessing, j.status = 'processing', "
        "j.attempts = 1, j.fence = 1, j.lock_owner = $owner, j.started_at = timestamp(), "
        "j.lock_until = timestamp() + $seconds * 1000 REMOVE j:EmbedPending",
        uid=uid,
        owner=owner,
        seconds=seconds,
    )


def end(database: Driver, uid: str, *, days_ago: int) -> None:
    """The job of an entity was completed so long ago."""
    database.execute_query(
        "MATCH (j:EmbedJob {entity_uid: $uid}) SET j:EmbedCompleted, j.status = 'completed', "
        "j.processed_at = timestamp() - $days * 86400000 REMOVE j:EmbedPending",
        uid=uid,
        days=days_ago,
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if words in line:
            break
    return said


def status_count(database: Driver, status: str) -> int:
    return sum(job["status"] == status for job in jobs_of(database))


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


def test_the_audit_tells_who_did_what(project: Project, database: Driver) -> None:
    database.execute_query("MATCH (a:EmbedAudit) DELETE a")
    add_entities(database, "Ada", "Bob")
    project.run("enqueue", "Ada", "Bob")
    project.run("jobs", "cancel", "--all", "--preview")
    project.run("pause")
    project.run("resume")
    project.run("jobs", "cancel", "--entity", "Ada", "--yes", "--reason", "not needed")

    told = json.loads(project.run("audit", "log", "--json").stdout)
    cancels = project.run("audit", "log", "--action", "cancel", "--since", "1h")

    assert [(entry["action"], entry["count"]) for entry in told] == [
        ("cancel", 1),
        ("resume", 1),
        ("pause", 1),
    ]
    assert all(entry["actor"].endswith("on the command line") for entry in told)
    assert "entity: Ada; reason: not needed" in cancels.stdout
    assert "pause" not in cancels.stdout
