"""The values put through Dagster's own chart and launcher.

Needs helm, and the folder of the chart (``helm pull dagster/dagster --untar``) in
``EMBED_PIPELINE_DAGSTER_CHART``.
"""

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from embed_pipeline.defs.runs import DRAIN_JOB
from tests.repository.deploy.files import KUBERNETES, load
from tests.support.project import ROOT

# Read now: tests do not see the settings of whoever runs them.
CHART = os.environ.get("EMBED_PIPELINE_DAGSTER_CHART", "")

NOWHERE = {
    "current-context": "nowhere",
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
    "clusters": [{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {}}],
}
"""Where the launcher looks for a cluster; it is not asked for anything."""

pytestmark = pytest.mark.skipif(
    not (CHART and shutil.which("helm")),
    reason="needs helm, and the folder of Dagster's chart in EMBED_PIPELINE_DAGSTER_CHART",
)


@cache
def manifests() -> list[dict[str, Any]]:
    values = str(KUBERNETES / "values.yaml")
    # The schema leads to addresses elsewhere; it is looked at below, without them.
    command = ["helm", "template", "dagster", CHART, "--namespace", "embed-pipeline"]
    command += ["--skip-schema-validation", "--values", values]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def instance() -> dict[str, Any]:
    [found] = [m for m in manifests() if m["metadata"]["name"] == "dagster-instance"]
    return yaml.safe_load(found["data"]["dagster.yaml"])


def pods() -> dict[str, dict[str, Any]]:
    return {
        m["spec"]["template"]["metadata"]["labels"]["embed-pipeline.role"]: m["spec"]["template"]
        for m in manifests()
        if m["kind"] == "Deployment"
    }


def merged(defaults: Any, own: Any) -> Any:
    if not isinstance(defaults, dict) or not isinstance(own, dict):
        return own
    return {**defaults, **{key: merged(defaults.get(key), value) for key, value in own.items()}}


def without_addresses(schema: Any) -> Any:
    """The schema, with everything allowed where it asks another server."""
    if isinstance(schema, list):
        return [without_addresses(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if str(schema.get("$ref", "")).startswith("http"):
        return {}
    return {key: without_addresses(value) for key, value in schema.items()}


def test_the_values_fit_the_schema_of_the_chart() -> None:
    schema = without_addresses(json.loads((Path(CHART) / "values.schema.json").read_text()))
    values = merged(load(Path(CHART) / "values.yaml"), load(KUBERNETES / "values.yaml"))

    jsonschema.validate(values, schema)


def test_nothing_is_started_but_the_three_parts() -> None:
    kinds = {manifest["kind"] for manifest in manifests()}

    assert pods().keys() == {"worker", "daemon", "webserver"}
    assert not kinds & {"StatefulSet", "Secret", "Ingress", "Job"}


@pytest.mark.parametrize("role", ["worker", "daemon", "webserver"])
def test_no_container_may_more_than_it_needs(role: str) -> None:
    spec = pods()[role]["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_dagster_accepts_the_instance_that_the_chart_writes(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(instance()))

    config, _ = dagster_instance_config(str(tmp_path))

    assert config["run_launcher"]["class"] == "K8sRunLauncher"


@pytest.mark.parametrize("key", ["concurrency", "sensors", "schedules", "telemetry", "nux"])
def test_the_instance_says_what_the_project_says(key: str) -> None:
    assert instance()[key] == load(ROOT / "dagster.yaml")[key]


def test_ticks_and_runs_are_kept_and_bounded_as_in_the_project() -> None:
    own = load(ROOT / "dagster.yaml")

    assert {key: instance()["retention"][key] for key in own["retention"]} == own["retention"]
    assert instance()["run_coordinator"] == own["run_coordinator"]
    for name in ("enabled", "max_runtime_seconds", "max_resume_run_attempts"):
        assert instance()["run_monitoring"][name] == own["run_monitoring"][name]


def test_the_pod_of_a_drain_gets_its_grace_its_bounds_and_its_secrets(tmp_path: Path) -> None:
    contexts = pytest.importorskip("dagster_k8s.container_context", reason="needs dagster-k8s")
    jobs = pytest.importorskip("dagster_k8s.job")
    launchers = pytest.importorskip("dagster_k8s.launcher")
    (tmp_path / "nowhere").write_text(yaml.safe_dump(NOWHERE))
    elsewhere = {"load_incluster_config": False, "kubeconfig_file": str(tmp_path / "nowhere")}
    launcher = launchers.K8sRunLauncher(**{**instance()["run_launcher"]["config"], **elsewhere})
    [container] = pods()["worker"]["spec"]["containers"]
    environment = {x["name"]: x.get("value") for x in container["env"]}
    of_code = json.loads(environment["DAGSTER_CLI_API_GRPC_CONTAINER_CONTEXT"])
    context = launcher.get_container_context_for_run(dg.DagsterRun(job_name=DRAIN_JOB)).merge(
        contexts.K8sContainerContext.create_from_config(of_code)
    )

    job = jobs.construct_dagster_k8s_job(
        job_config=context.get_k8s_job_config(container["image"], launcher),
        args=["dagster", "api", "execute_run"],
        job_name="drain",
        user_defined_k8s_config=context.run_k8s_config,
    )

    pod = job.spec.template
    [drain] = pod.spec.containers
    assert pod.metadata.labels["embed-pipeline.role"] == "worker"
    assert pod.spec.termination_grace_period_seconds == 120
    assert pod.spec.restart_policy == "Never"
    assert job.spec.backoff_limit == 0
    assert pod.spec.security_context.run_as_non_root is True
    assert drain.security_context.read_only_root_filesystem is True
    assert drain.resources.limits == {"memory": "1Gi"}
    assert "embed-pipeline-secrets" in {x.secret_ref.name for x in drain.env_from if x.secret_ref}
    assert {"state", "tmp", "history"} <= {volume.name for volume in pod.spec.volumes}
