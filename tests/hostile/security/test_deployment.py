"""A real deployment in which everything goes wrong once: what it leaves, and whom it listens to.

I19: no secret and no text of an entity in run config, event log, job errors, logs or reports. The
key of an entity may stand there, and its type in figures: operators need to find it.
"""

import contextlib
import ipaddress
import json
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from starlette.responses import HTMLResponse, Response
from typer.testing import CliRunner

from embed_pipeline.cli.app import app
from tests.conftest import TestServer
from tests.hostile.security.canaries import (
    KEY,
    OBSERVATION,
    WORDS,
    WRONG_PASSWORD,
    Evidence,
    collect,
)
from tests.support.dagster_deployment import Deployment, deployment, processes_of
from tests.support.dagster_graphql import LAUNCH, LOCATION
from tests.support.openai_server import failure, openai_server
from tests.support.project import make_project

DRAIN = "drain_embed_queue"
LINK = """
mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
    __typename ... on RunConfigValidationInvalid { errors { message reason } } } }
"""

COMMANDS = (
    ("status",),
    ("status", "--json", "--coverage"),
    ("doctor", "--probe"),
    ("jobs", "list"),
    ("jobs", "list", "--json"),
    ("jobs", "retry", "--status", "failed", "--preview"),
    ("reconcile", "--dry-run"),
    ("enqueue", "No such entity"),
    ("recover",),
    ("resume", "--close-breaker"),
    ("report", "--out", "report.html"),
    ("metrics",),
)

THE_KEY = {"env": "OPENAI_API_KEY"}
PRINTING_THE_KEY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cancel_jobs", {"ops": {"cancel_by_filter": {"config": {"job_ids": [THE_KEY]}}}}),
    ("cancel_jobs", {"ops": {"cancel_by_filter": {"config": {"reason": THE_KEY}}}}),
    ("cancel_jobs", {"ops": {"cancel_by_filter": {"config": {"categories": [THE_KEY]}}}}),
    ("retry_failed_jobs", {"ops": {"retry_jobs": {"config": {"entity_keys": [THE_KEY]}}}}),
    ("drain_embed_queue", {"ops": {"drain": {"config": {"max_jobs": THE_KEY}}}}),
    ("pause_queue", {"resources": {"neo4j": {"config": {"password": THE_KEY}}}}),
    ("pause_queue", {"resources": {"io_manager": {"config": {"base_dir": THE_KEY}}}}),
)
"""Run configs that would have Dagster put the key where a text, a number or a password belongs."""

pytestmark = pytest.mark.timeout(600)


def answer(body: dict[str, Any]) -> Response | None:
    """A provider that quotes what it refuses: key and text, whole, cut off and escaped."""
    said = " / ".join(body["input"])
    quoted = f"{said} {said[:-4]} {json.dumps(said)} with the key {KEY}"
    if "Refused" in said:
        return failure(400, f"Invalid input: {quoted}", "invalid_input")
    if "Garbage" in said:
        return HTMLResponse(f"<h1>{quoted}</h1>")
    if "Fault" in said:
        return failure(500, f"We failed at {quoted}", None)
    return None


@pytest.fixture(scope="module")
def dagster(
    neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    project = make_project(tmp_path_factory.mktemp("project"))
    loud = {"OPENAI_API_KEY": KEY, "OPENAI_LOG": "debug"}
    with openai_server() as provider:
        provider.key, provider.answer_with = KEY, answer
        with deployment(project, neo4j_server, provider, **loud) as started:
            yield started


@pytest.fixture(scope="module")
def evidence(dagster: Deployment) -> Evidence:
    """What is left of a life in which everything went wrong once."""
    found = Evidence()
    embed_good_and_bad(dagster)
    refuse_the_key(dagster)
    for job, config in PRINTING_THE_KEY:
        found.add(f"link to {job} {config}", launch_by_link(dagster, job, config))
    for command in COMMANDS:
        say(found, dagster, *command)
    for job in dagster.graph.jobs():
        say(found, dagster, "jobs", "show", job["id"])
    say(found, dagster, "status", NEO4J_PASSWORD=WRONG_PASSWORD)
    say(found, dagster, "status", NEO4J_URI=f"bolt://neo4j:{WRONG_PASSWORD}@127.0.0.1:1")
    drained = dagster.project.run("drain", "--verbose")
    found.add("command drain", f"{drained.stdout}\n{drained.stderr}")
    say(found, dagster, "support", "--out", "support.zip")
    with zipfile.ZipFile(dagster.project.folder / "support.zip") as archive:
        for name in archive.namelist():
            found.add(f"support {name}", archive.read(name).decode())
    collect(dagster, found)
    return found


def embed_good_and_bad(dagster: Deployment) -> None:
    write_entities(dagster, "Harmless", "Refused with its text")
    dagster.wait_until(
        lambda: dagster.graph.counts() == {"completed": 1, "failed": 1},
        "one is embedded, and one has failed for good",
    )
    write_entities(dagster, "Garbage with its text", "Fault with its text")
    dagster.wait_until(
        lambda: sum("error" in job for job in dagster.graph.jobs()) == 3,
        "the others have failed at least once",
    )


def write_entities(dagster: Deployment, *names: str) -> None:
    dagster.graph.run(
        """
        UNWIND $names AS name
        CREATE (:Entity {name: name, entityType: 'thing', version: 1, observations: $text})
        """,
        names=names,
        text=json.dumps([OBSERVATION]),
    )


def refuse_the_key(dagster: Deployment) -> None:
    dagster.provider.key = "another"
    write_entities(dagster, "Too late")
    dagster.wait_until(lambda: dagster.graph.breaker() == "open", "the breaker is open")
    dagster.wait_until(lambda: dagster.ui.runs(DRAIN, statuses=["FAILURE"]), "a drain has failed")


FOREIGN = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}


def follow_link(dagster: Deployment, mutation: str, **variables: object) -> dict[str, Any]:
    """Give an order as a page of another site can, in a browser that reaches the web server."""
    link = urllib.parse.urlencode({"query": mutation, "variables": json.dumps(variables)})
    request = urllib.request.Request(f"{dagster.dagster.url}/graphql?{link}", headers=FOREIGN)
    with urllib.request.urlopen(request) as response:
        answered = json.load(response)
    assert "Access-Control-Allow-Origin" not in response.headers
    return answered["data"]


def launch_by_link(dagster: Deployment, job: str, config: dict[str, Any]) -> dict[str, Any]:
    params = {"selector": {**LOCATION, "jobName": job}, "runConfigData": config}
    return follow_link(dagster, LINK, p=params)


def say(evidence: Evidence, dagster: Deployment, *command: str, **environment: str) -> None:
    """Run a command in this process; each of its own would take seconds to start."""
    variables = {**dagster.project.environment, **environment}
    with contextlib.chdir(dagster.project.folder):
        result = CliRunner().invoke(app, command, env=variables)
    said = f"{result.output}\n{result.exception or ''}"
    evidence.add(f"command {' '.join((*command, *environment))}", said)


def test_the_search_sees_what_is_there(evidence: Evidence) -> None:
    assert evidence.holds("Refused with its text", where="graph")
    assert evidence.holds("Refused with its text", where="command jobs list")
    assert evidence.holds("AuthenticationError", where="graphql run")
    assert evidence.holds("BadRequestError", where="command jobs show")
    assert evidence.holds("NEO4J_", where="graphql resources")
    assert evidence.holds("drain_embed_queue", where="sqlite runs.db snapshots")
    assert evidence.holds("AuthenticationError", where="sqlite")
    assert evidence.holds("<html", where="file report.html")
    assert evidence.holds("drain ended", where="file ")
    assert evidence.holds("drain ended", where="command drain")
    assert evidence.holds("AuthenticationError", where="command drain")
    # Either it may not try, or its try has kept the breaker open; both are said.
    assert evidence.holds("breaker", where="command drain")
    assert evidence.holds("AuthenticationError", where="command doctor")
    assert evidence.holds("BadRequestError", where="support errors.json")
    assert evidence.holds("embed_backlog", where="support logs/dagster.log")


@pytest.mark.parametrize("canary", [KEY, WRONG_PASSWORD])
def test_no_key_and_no_password_is_left_anywhere(evidence: Evidence, canary: str) -> None:
    assert evidence.places_of({"secret": canary}) == []


def test_the_password_of_the_database_is_left_nowhere(
    evidence: Evidence, neo4j_server: TestServer
) -> None:
    if len(neo4j_server.password) < 12:
        pytest.skip("the server was given with a password that may stand anywhere by chance")

    assert evidence.places_of({"password": neo4j_server.password}) == []


def test_no_word_of_an_entitys_text_is_left_but_on_the_entity(evidence: Evidence) -> None:
    assert evidence.places_of({word: word for word in WORDS}) == []


def listening(pid: int) -> list[str]:
    """The addresses that a process listens at; other processes may reach it there."""
    try:
        connections = psutil.Process(pid).net_connections(kind="inet")
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return []
    return [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]


def test_every_process_listens_on_loopback_only(dagster: Deployment) -> None:
    addresses = [ip for pid in processes_of(dagster.dagster.group) for ip in listening(pid)]

    assert addresses
    assert [ip for ip in addresses if not ipaddress.ip_address(ip).is_loopback] == []


def obeyed(dagster: Deployment, mutation: str, **variables: object) -> str:
    """What becomes of an order that comes as a link in a page of another site."""
    [result] = follow_link(dagster, mutation, **variables).values()
    return result["__typename"]


def test_the_web_server_obeys_a_page_of_another_site_so_that_nothing_may_depend_on_it(
    dagster: Deployment,
) -> None:
    """A limit of Dagster, written down: a link in any page can start a job of this deployment.

    Should this fail, Dagster has mended it: shorten SECURITY.md.
    """
    answered = launch_by_link(dagster, "recover_stale_leases", {})

    assert answered["launchRun"]["__typename"] == "LaunchRunSuccess"


def test_the_user_whom_the_proxy_names_is_the_actor_of_what_he_launches(
    dagster: Deployment,
) -> None:
    """The coordinator of the real web server tags the run; a tag that was typed names nobody."""
    execution = {
        "selector": {**LOCATION, "pipelineName": "pause_queue"},
        "executionMetadata": {"tags": [{"key": "embed_pipeline/user", "value": "mallory"}]},
    }
    body = json.dumps({"query": LAUNCH, "variables": {"params": execution}}).encode()
    headers = {"Content-Type": "application/json", "X-Forwarded-User": "alice"}
    request = urllib.request.Request(f"{dagster.dagster.url}/graphql", body, headers)
    with urllib.request.urlopen(request) as response:
        run = json.load(response)["data"]["launchRun"]["run"]["runId"]

    def entries() -> list[dict[str, Any]]:
        return dagster.graph.run("MATCH (a:EmbedAudit {run_id: $run}) RETURN a {.*} AS a", run=run)

    dagster.wait_until(entries, "the pause is recorded")
    [found] = entries()
    assert (found["a"]["actor"], found["a"]["action"]) == ("alice", "pause")
    assert "mallory" not in json.dumps(found)


def test_no_link_makes_a_run_that_reads_a_variable(evidence: Evidence) -> None:
    answers = [text for where, text in evidence.texts.items() if where.startswith("link to")]

    assert len(answers) == len(PRINTING_THE_KEY)
    assert [text for text in answers if "RunConfigValidationInvalid" not in text] == []


@pytest.mark.proof
def test_the_web_server_also_stops_sensors_deletes_runs_wipes_assets_and_believes_reports(
    dagster: Deployment,
) -> None:
    """The other limits that SECURITY.md writes down."""
    report = urllib.request.Request(
        f"{dagster.dagster.url}/report_asset_materialization/never_made",
        headers=FOREIGN,
        method="POST",
    )
    with urllib.request.urlopen(report) as response:
        assert response.status == 200
    sensor = {**LOCATION, "sensorName": "queue_metrics"}
    found = dagster.ui.ask(
        "query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { id } } }",
        s=sensor,
    )
    launched = dagster.ui.launch("recover_stale_leases")
    dagster.wait_until(lambda: dagster.ui.run(launched).is_over, "a run has ended")
    asset = {"assetKey": {"path": ["never_made"]}}

    stopped = obeyed(
        dagster,
        "mutation($id: String!) { stopSensor(id: $id) { __typename } }",
        id=found["sensorOrError"]["id"],
    )
    deleted = obeyed(
        dagster, "mutation($id: String!) { deleteRun(runId: $id) { __typename } }", id=launched
    )
    wiped = obeyed(
        dagster,
        "mutation($a: [PartitionsByAssetSelector!]!) "
        "{ wipeAssets(assetPartitionRanges: $a) { __typename } }",
        a=[asset],
    )

    assert stopped == "StopSensorMutationResult"
    assert deleted == "DeletePipelineRunSuccess"
    assert wiped == "AssetWipeSuccess"
