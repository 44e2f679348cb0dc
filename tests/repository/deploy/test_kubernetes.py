"""The values for Dagster's chart and the manifests beside them: what must stand in them."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from embed_pipeline.defs.runs import mark_worker
from tests.repository.deploy.files import DOCKER, KUBERNETES, SECRETS, giving_back, is_pinned, load
from tests.support.project import ROOT

TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
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


def test_code_server_and_drains_get_no_token_of_the_cluster() -> None:
    [mount] = [m for m in CODE["volumeMounts"] if m["mountPath"] == TOKEN_FOLDER]
    [volume] = [v for v in CODE["volumes"] if v["name"] == mount["name"]]

    # Where something is mounted already, Kubernetes mounts no token.
    assert volume == {"name": mount["name"], "emptyDir": {}}
    assert VALUES["dagster-user-deployments"]["rbacEnabled"] is False
    for part in ("daemon", "webserver"):
        assert TOKEN_FOLDER not in str(PARTS[part]["volumeMounts"])


def test_the_pod_of_a_drain_has_something_mounted_where_a_token_would_be() -> None:
    contexts = pytest.importorskip("dagster_k8s.container_context", reason="needs dagster-k8s")
    jobs = pytest.importorskip("dagster_k8s.job")
    # As the chart hands it over; it writes the first line itself.
    of_code = contexts.K8sContainerContext.create_from_config(
        {
            "k8s": {
                "run_k8s_config": {"pod_spec_config": {"automount_service_account_token": True}},
                "volumes": CODE["volumes"],
                "volume_mounts": CODE["volumeMounts"],
            }
        }
    )

    job = jobs.construct_dagster_k8s_job(
        job_config=jobs.DagsterK8sJobConfig(job_image="image", dagster_home="/home"),
        args=["dagster", "api", "execute_run"],
        job_name="drain",
        user_defined_k8s_config=of_code.run_k8s_config,
    )

    pod = job.spec.template.spec
    [container] = pod.containers
    [name] = [m.name for m in container.volume_mounts if m.mount_path == TOKEN_FOLDER]
    [volume] = [v for v in pod.volumes if v.name == name]
    assert volume.empty_dir is not None
    assert not pod.init_containers


def test_a_run_needs_nothing_of_the_cluster(tmp_path: Path) -> None:
    """Its instance names the launcher, which cannot be made without a token."""
    pytest.importorskip("dagster_k8s", reason="needs dagster-k8s")
    launcher = {"module": "dagster_k8s", "class": "K8sRunLauncher"}
    config = {"dagster_home": "/home", "instance_config_map": "x", "service_account_name": "x"}
    text = yaml.safe_dump({"run_launcher": {**launcher, "config": config}})
    (tmp_path / "dagster.yaml").write_text(text)

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        mark_worker(context.instance, context.run_id, longest=timedelta(minutes=1))
        context.instance.report_runless_asset_event(dg.AssetMaterialization("measured"))

    @dg.job(executor_def=dg.in_process_executor)
    def drain() -> None:
        work()

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert drain.execute_in_process(instance=instance).success
        with pytest.raises(Exception, match="Service host/port is not set"):
            _ = instance.run_launcher


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
