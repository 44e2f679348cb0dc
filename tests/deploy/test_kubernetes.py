"""The values for Dagster's chart and the manifests beside them: what must stand in them."""

import re
from datetime import timedelta
from typing import Any

import pytest
import yaml

from tests.deploy.files import DOCKER, KUBERNETES, SECRETS, giving_back, is_pinned, load
from tests.project import ROOT

VALUES = load(KUBERNETES / "values.yaml")
[CODE] = VALUES["dagster-user-deployments"]["deployments"]
LAUNCHER = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
PARTS: dict[str, dict[str, Any]] = {
    "code": CODE,
    "daemon": VALUES["dagsterDaemon"],
    "webserver": VALUES["dagsterWebserver"],
}
POLICIES = {
    policy["metadata"]["name"]: policy["spec"]
    for policy in yaml.safe_load_all((KUBERNETES / "network-policy.yaml").read_text())
}


def test_a_pod_has_the_time_to_give_its_jobs_back_before_it_is_killed() -> None:
    grace = LAUNCHER["runK8sConfig"]["podSpecConfig"]["terminationGracePeriodSeconds"]
    cancel = VALUES["dagsterDaemon"]["runMonitoring"]["cancelTimeoutSeconds"]

    assert giving_back() < timedelta(seconds=grace) < timedelta(seconds=cancel)


def test_a_failed_drain_is_repeated_by_the_sensor_only() -> None:
    assert LAUNCHER["runK8sConfig"]["jobSpecConfig"]["backoffLimit"] == 0
    assert VALUES["dagsterDaemon"]["runRetries"]["enabled"] is False
    assert VALUES["dagsterDaemon"]["runMonitoring"]["maxResumeRunAttempts"] == 0


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_not_root_has_no_rights_and_bounds(part: str) -> None:
    spec = PARTS[part]

    assert spec["podSecurityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["resources"]["requests"].keys() == {"cpu", "memory"}
    assert spec["resources"]["limits"].keys() == {"memory"}


def test_drains_run_as_the_code_server_does() -> None:
    assert LAUNCHER["securityContext"] == CODE["securityContext"]
    assert LAUNCHER["resources"] == CODE["resources"]
    assert CODE["includeConfigInLaunchedRuns"]["enabled"] is True


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_the_image_of_the_dockerfile(part: str) -> None:
    image = PARTS[part]["image"]
    user = re.search(r"^USER (\d+)", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)

    assert is_pinned(f"{image['repository']}:{image['tag']}")
    assert user
    assert PARTS[part]["podSecurityContext"]["runAsUser"] == int(user[1])


def test_the_chart_is_of_the_locked_version() -> None:
    [locked] = re.findall(
        r"^dagster==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )

    assert f"--version {locked} " in (KUBERNETES / "values.yaml").read_text()


def test_secrets_are_named_and_never_written() -> None:
    text = "".join(file.read_text() for file in KUBERNETES.glob("*.yaml"))

    assert not SECRETS & {variable["name"] for variable in CODE["env"]}
    assert CODE["envSecrets"] == [{"name": "embed-pipeline-secrets"}]
    assert VALUES["postgresql"]["postgresqlPassword"] == ""
    assert VALUES["generatePostgresqlPasswordSecret"] is False
    assert "kind: Secret" not in text


def test_everything_is_refused_that_no_policy_allows() -> None:
    rest = POLICIES["embed-pipeline-nothing-else"]

    assert rest["podSelector"] == {}
    assert sorted(rest["policyTypes"]) == ["Egress", "Ingress"]
    assert "ingress" not in rest


def test_the_code_server_listens_to_daemon_and_web_server_only() -> None:
    [ingress] = POLICIES["embed-pipeline-worker"]["ingress"]

    assert ingress["ports"] == [{"protocol": "TCP", "port": CODE["port"]}]
    assert ingress["from"] == [
        {"podSelector": POLICIES["embed-pipeline-control"]["podSelector"]},
    ]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_carries_the_label_that_policies_ask_for(part: str) -> None:
    role = PARTS[part]["labels"]["embed-pipeline.role"]

    assert role in str(POLICIES)
    assert "embed-pipeline.role" not in str(POLICIES["embed-pipeline-nothing-else"])
