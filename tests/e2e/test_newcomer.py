"""What a newcomer does, through the command line, with a Neo4j of its own."""

import json
import signal
import stat
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from dotenv import dotenv_values
from neo4j import Driver, GraphDatabase

from embed_pipeline.devserver.ports import answers, free_port
from tests.support.openai_server import KEY, openai_server, refusing_dimensions
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import ROOT, Project, make_project

ENTITIES = 329
EXAMPLE = ROOT / ".env.example"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A folder with a running bundled server."""
    made = make_project(tmp_path_factory.mktemp("project"))
    started = made.run("neo4j", "start", "--bolt-port", str(free_port()))
    assert started.returncode == 0, started.stderr
    yield made
    made.run("neo4j", "stop")


@pytest.fixture
def database(project: Project) -> Iterator[Driver]:
    """The project's database, without data, constraints and indexes."""
    home = project.folder / ".embed_pipeline" / "neo4j"
    connection = json.loads((home / "connection.json").read_text())
    auth = (connection["username"], connection["password"])
    with GraphDatabase.driver(connection["uri"], auth=auth) as driver:
        driver.execute_query("MATCH (n) DETACH DELETE n")
        for record in driver.execute_query("SHOW CONSTRAINTS YIELD name").records:
            driver.execute_query("DROP CONSTRAINT $name", name=record["name"])
        lookups = "SHOW INDEXES YIELD name, type WHERE type <> 'LOOKUP'"
        for record in driver.execute_query(lookups).records:
            driver.execute_query("DROP INDEX $name", name=record["name"])
        yield driver


def schema_of(driver: Driver) -> list[dict]:
    statement = """
    SHOW INDEXES YIELD name, type, state, labelsOrTypes, properties, options, owningConstraint
    WHERE type <> 'LOOKUP'
    RETURN name, type, state, labelsOrTypes, properties, options, owningConstraint ORDER BY name
    """
    return [record.data() for record in driver.execute_query(statement).records]


def test_m62_m65_init_twice_leaves_the_same_schema(project: Project, database: Driver) -> None:
    first = project.run("init")
    before = schema_of(database)

    second = project.run("init")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert schema_of(database) == before
    unique = {tuple(i["properties"]) for i in before if i["owningConstraint"]}
    assert {("id",), ("entity_uid", "model", "version")} <= unique
    [vector] = [i for i in before if i["type"] == "VECTOR"]
    assert vector["options"]["indexConfig"]["vector.dimensions"] == 1536
    assert {i["state"] for i in before} == {"ONLINE"}


def test_init_by_several_at_once_leaves_one_schema(project: Project, database: Driver) -> None:
    rivals = [
        subprocess.Popen(
            project.command("init"),
            cwd=project.folder,
            env=project.variables(),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(4)
    ]
    said = [rival.communicate()[1] for rival in rivals]

    assert [rival.returncode for rival in rivals] == [0, 0, 0, 0], said
    schema = schema_of(database)
    assert project.run("init").returncode == 0
    assert schema_of(database) == schema


def test_doctor_says_that_init_is_missing(project: Project, database: Driver) -> None:
    result = project.run("doctor")

    assert result.returncode == 5
    assert "✗ Schema the schema lacks" in result.stdout
    assert "run 'embed-pipeline init'" in result.stdout


def test_doctor_finds_nothing_wrong_after_init(project: Project, database: Driver) -> None:
    project.run("init")

    result = project.run("doctor")

    assert result.returncode == 0, result.stdout
    for good in ("✓ Settings", "✓ Neo4j 5.26", "✓ Credentials", "✓ APOC 5.26", "✓ Schema"):
        assert good in result.stdout
    assert "! Provider mock" in result.stdout


def test_doctor_finds_an_index_of_other_dimensions_and_init_replaces_it(
    project: Project, database: Driver
) -> None:
    project.run("init")
    local = {"EMBEDDING_PROVIDER": "local"}

    assert project.run("init", **local).returncode == 5
    mismatch = project.run("doctor", **local)
    assert mismatch.returncode == 5
    assert "✗ Model queue 'default' holds vectors of mock" in mismatch.stdout
    assert "has 1536 dimensions, the embedding model makes 512" in mismatch.stdout

    assert project.run("init", "--change-model", **local).returncode == 0
    assert project.run("doctor", **local).returncode == 0


def test_doctor_tells_a_wrong_password_from_a_silent_server(
    project: Project, database: Driver
) -> None:
    uri = json.loads((project.folder / ".embed_pipeline/neo4j/connection.json").read_text())["uri"]

    refused = project.run("doctor", NEO4J_URI=uri, NEO4J_PASSWORD="hunter2")
    silent = project.run("doctor", NEO4J_URI="bolt://127.0.0.1:9", NEO4J_PASSWORD="hunter2")

    assert (refused.returncode, silent.returncode) == (4, 3)
    assert "✗ Credentials" in refused.stdout
    assert "✗ Neo4j Cannot reach Neo4j at 127.0.0.1:9" in silent.stdout
    assert "hunter2" not in refused.stdout + refused.stderr + silent.stdout + silent.stderr


def test_doctor_asks_the_provider_only_when_told_to(project: Project, database: Driver) -> None:
    with openai_server() as provider:
        known = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": provider.base_url}
        project.run("init", **known)

        assert project.run("doctor", **known).returncode == 0
        assert provider.requests == []

        assert "✓ Provider openai" in project.run("doctor", "--probe", **known).stdout
        assert provider.requests

        wrong = project.run("doctor", "--probe", **{**known, "OPENAI_API_KEY": "sk-hunter2"})
        assert wrong.returncode == 4
        assert "sk-hunter2" not in wrong.stdout + wrong.stderr

        provider.answer_with = refusing_dimensions(1536)
        refused = project.run("doctor", "--probe", **known, EMBEDDING_PROFILE="openai")
        assert refused.returncode == 2
        assert "set EMBEDDING_SEND_DIMENSIONS=false" in refused.stdout
        # Of a server that no profile knows nobody has said that it takes them.
        learnt = project.run("doctor", "--probe", **known)
        assert learnt.returncode == 0
        assert "Drains keep to it from now on" in learnt.stdout
        without = project.run("doctor", "--probe", **known, EMBEDDING_SEND_DIMENSIONS="false")
        assert "✓ Provider openai" in without.stdout


@pytest.mark.parametrize(("value", "code"), [("31", 2), ("6", 2), ("7", 0), ("30", 0)])
def test_m23_doctor_checks_the_settings_alone(project: Project, value: str, code: int) -> None:
    result = project.run("doctor", "--settings-only", EMBED_JOB_RETENTION_DAYS=value)

    assert result.returncode == code
    if code:
        assert f"EMBED_JOB_RETENTION_DAYS is '{value}'" in result.stderr
        assert "7 to 30" in result.stderr
        assert "Traceback" not in result.stderr


def test_sample_load_twice_leaves_each_entity_once(project: Project, database: Driver) -> None:
    project.run("init")

    first, second = project.run("sample", "load"), project.run("sample", "load")

    assert f"{ENTITIES} entities added" in first.stdout
    assert "already there" in second.stdout
    found = database.execute_query(
        "MATCH (e:Entity) RETURN count(e) AS all, count(DISTINCT e.name) AS names"
    ).records[0]
    assert (found["all"], found["names"]) == (ENTITIES, ENTITIES)
    shape = database.execute_query(
        "MATCH (e:Entity {name: 'Ada Lovelace'}) RETURN e {.*} AS e"
    ).records[0]["e"]
    assert shape["entityType"] == "person"
    assert len(json.loads(shape["observations"])) >= 2
    assert shape["version"] == 1
    assert "validTo" not in shape


def test_sample_load_without_schema_says_what_to_do(project: Project, database: Driver) -> None:
    result = project.run("sample", "load")

    assert result.returncode == 5
    assert "embed-pipeline init" in result.stderr


def test_the_password_is_for_the_user_only(project: Project) -> None:
    home = project.folder / ".embed_pipeline" / "neo4j"

    for name in ("password", "connection.json"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def open_to_others(folder: Path) -> list[str]:
    """What is in a folder that other users of the machine may read, write or enter."""
    return [
        f"{stat.filemode(path.lstat().st_mode)} {path}"
        for path in (folder, *folder.rglob("*"))
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


def test_m97_m98_dev_starts_everything_makes_sense_at_once_and_ctrl_c_stops_it(
    project: Project, database: Driver
) -> None:
    project.run("neo4j", "stop")
    chosen = {"EMBEDDING_PROVIDER": str(dotenv_values(EXAMPLE)["EMBEDDING_PROVIDER"])}
    port = free_port()
    # As an earlier version left it.
    left = project.folder / ".embed_pipeline" / "dagster" / "storage" / "a-run" / "drain.err"
    left.parent.mkdir(parents=True)
    left.write_text("said")
    left.chmod(0o644)
    dev = subprocess.Popen(
        project.command("dev", "--port", str(port)),
        cwd=project.folder,
        env=project.variables(**chosen),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = wait_for(dev, "Running.")
        assert f"http://127.0.0.1:{port}" in said
        assert "Sample graph: 329 entities" in said
        assert location_status(port) == "LOADED"
        database.execute_query("CREATE (:Entity {name: 'Zebra', observations: ['has stripes']})")
        jobs = "MATCH (job:EmbedJob {entity_uid: 'Zebra'}) RETURN job.model AS model"
        assert database.execute_query(jobs).records[0]["model"] == "use-multilingual-3"
        wait_until_embedded(database, ENTITIES + 1)
        found = project.run("search", "an animal that looks like a barcode", **chosen)
        assert "BECAUSE" in found.stdout
        assert " Zebra has stripes" in found.stdout.split("0.")[1], found.stdout
        german = project.run("search", "eine Sprache für Betriebssysteme", "--limit", "3", **chosen)
        assert "programming language" in german.stdout
        assert open_to_others(project.folder / ".embed_pipeline") == []
        again = project.run("dev", "--port", str(port))
        assert again.returncode == 1
        assert "already running" in again.stderr
    finally:
        dev.send_signal(signal.SIGINT)
        rest = dev.communicate(timeout=PATIENCE_SECONDS)[0]

    assert dev.returncode == 0, rest
    assert "Stopped" in rest
    assert not answers(port)
    assert project.run("neo4j", "status").returncode == 3
    assert list(project.folder.glob(".tmp_dagster*")) == []
    assert project.run("neo4j", "start").returncode == 0


@pytest.mark.proof
def test_dev_cleans_up_after_one_that_was_killed(project: Project, database: Driver) -> None:
    port = free_port()
    command = project.command("dev", "--port", str(port))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    killed = subprocess.Popen(command, cwd=project.folder, env=project.variables(), **pipes)
    wait_for(killed, "Running.")

    killed.kill()
    killed.communicate()
    assert answers(port)
    second = subprocess.Popen(command, cwd=project.folder, env=project.variables(), **pipes)
    wait_for(second, "Running.")
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=PATIENCE_SECONDS)

    assert second.returncode == 0
    assert not answers(port)


def test_dev_on_a_taken_port_says_what_to_do(project: Project) -> None:
    with openai_server() as other:
        result = project.run("dev", "--port", str(other.port))

    assert result.returncode == 1
    assert f"port {other.port} is taken" in result.stderr
    assert f"--port {other.port + 1}" in result.stderr


def test_dev_with_a_wrong_setting_starts_nothing(project: Project) -> None:
    port = free_port()

    result = project.run("dev", "--port", str(port), EMBED_JOB_RETENTION_DAYS="31")

    assert result.returncode == 2
    assert not answers(port)


def wait_until_embedded(database: Driver, entities: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    embedded = "MATCH (e:Entity) WHERE e.embedding IS NOT NULL RETURN count(e) AS embedded"
    while database.execute_query(embedded).records[0]["embedded"] < entities:
        assert time.monotonic() < deadline, "not everything was embedded"
        time.sleep(0.5)


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Read the output until the words have been said."""
    said = ""
    assert process.stdout is not None
    deadline = time.monotonic() + PATIENCE_SECONDS
    for line in process.stdout:
        said += line
        if words in line:
            return said
        assert time.monotonic() < deadline, said
    raise AssertionError(said)


def location_status(port: int) -> str:
    query = """
    { workspaceOrError { ... on Workspace {
        locationEntries { loadStatus locationOrLoadError { __typename } } } } }
    """
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        data=json.dumps({"query": query}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        [entry] = json.load(answer)["data"]["workspaceOrError"]["locationEntries"]
    assert entry["locationOrLoadError"]["__typename"] == "RepositoryLocation"
    return entry["loadStatus"]
