"""What the UI of Dagster knows, asked for through the same GraphQL."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from tests.support.patience import PATIENCE_SECONDS

LOCATION = {"repositoryLocationName": "embed_pipeline", "repositoryName": "__repository__"}

METADATA = """
metadataEntries {
    label
    ... on IntMetadataEntry { number: intValue }
    ... on FloatMetadataEntry { float: floatValue }
    ... on TextMetadataEntry { text }
    ... on MarkdownMetadataEntry { markdown: mdStr }
    ... on BoolMetadataEntry { truth: boolValue }
    ... on JsonMetadataEntry { json: jsonString }
}
"""

RUN = """
runId jobName status creationTime startTime endTime tags { key value }
repositoryOrigin { repositoryLocationName }
"""

RUNS = f"""
query($filter: RunsFilter) {{ runsOrError(filter: $filter) {{
    __typename
    ... on Runs {{ results {{ {RUN} }} }}
    ... on PythonError {{ message }} }} }}
"""

ERRORS = """
query($run: ID!) { runOrError(runId: $run) { __typename ... on Run {
    eventConnection { events {
        ... on ExecutionStepFailureEvent { error { message causes { message } } }
        ... on RunFailureEvent { failure: message error { message causes { message } } } } } } } }
"""

LAUNCH = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PythonError { message } } }
"""

TERMINATE = """
mutation($run: String!) { terminateRun(runId: $run) {
    __typename
    ... on TerminateRunFailure { message }
    ... on PythonError { message } } }
"""

ASSETS = "{ assetNodes { assetKey { path } isMaterializable } }"

MATERIALIZATIONS = f"""
query($asset: AssetKeyInput!, $limit: Int) {{ assetOrError(assetKey: $asset) {{
    __typename
    ... on Asset {{ assetMaterializations(limit: $limit) {{
        runId timestamp {METADATA} }} }} }} }}
"""

CHECK_NAMES = """
query($asset: AssetKeyInput!) { assetNodeOrError(assetKey: $asset) {
    __typename
    ... on AssetNode { assetChecksOrError {
        __typename ... on AssetChecks { checks { name } } } } } }
"""

CHECK = f"""
query($asset: AssetKeyInput!, $check: String!) {{
    assetCheckExecutions(assetKey: $asset, checkName: $check, limit: 1) {{
        status timestamp evaluation {{ success severity description {METADATA} }} }} }}
"""

SENSOR = """
query($sensor: SensorSelector!, $limit: Int, $after: Float) {
    sensorOrError(sensorSelector: $sensor) {
        __typename
        ... on PythonError { message }
        ... on Sensor { sensorState { status ticks(limit: $limit, afterTimestamp: $after) {
            status timestamp endTimestamp runIds skipReason error { message } } } } } }
"""


class GraphQLError(AssertionError):
    """The web server refused a question or a wish."""


@dataclass(frozen=True)
class Run:
    """A run; times are in seconds since the epoch."""

    id: str
    job: str
    status: str
    created: float
    started: float | None
    ended: float | None
    location: str
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.status in ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True)
class Materialization:
    """One point of an asset's history."""

    run_id: str
    at: float
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Check:
    """What an asset check said last; ``passed`` is None if it has not been evaluated yet."""

    passed: bool | None
    severity: str | None = None
    description: str | None = None
    at: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tick:
    """One evaluation of a sensor."""

    status: str
    at: float
    ended: float | None
    run_ids: tuple[str, ...]
    skip_reason: str | None
    error: str | None


@dataclass(frozen=True)
class Sensor:
    """Whether it is on, and its ticks, the newest first."""

    status: str
    ticks: list[Tick]


class DagsterGraphQL:
    """Questions and wishes to a web server; it answers as the UI shows things."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/graphql"

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send any query; return its data."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._url, data=body, headers=headers),
                timeout=PATIENCE_SECONDS,
            ) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            raise GraphQLError(f"{error}: {error.read().decode(errors='replace')}") from error
        if said.get("errors"):
            raise GraphQLError(json.dumps(said["errors"], indent=1))
        return said["data"]

    def runs(self, job: str | None = None, *, statuses: list[str] | None = None) -> list[Run]:
        """The runs of a job, or of all, the newest first."""
        filter_ = {"pipelineName": job, "statuses": statuses}
        return self._runs({name: value for name, value in filter_.items() if value})

    def run(self, run_id: str) -> Run:
        """One run."""
        [run] = self._runs({"runIds": [run_id]})
        return run

    def errors(self, run_id: str) -> list[str]:
        """Why a run failed: the innermost error of every step that did, or of the run itself."""
        answer = _only(self.ask(ERRORS, run=run_id), "Run")
        events = [event for event in answer["eventConnection"]["events"] if event]
        steps = [event["error"] for event in events if "failure" not in event]
        said = [(error["causes"] or [error])[-1]["message"].strip() for error in steps if error]
        return said or [event["failure"] for event in events if "failure" in event]

    def launch(self, job: str, config: dict[str, Any] | None = None) -> str:
        """Start a job as the launchpad does; return the run's id."""
        params = {"selector": {**LOCATION, "jobName": job}, "runConfigData": config or {}}
        return _only(self.ask(LAUNCH, params=params), "LaunchRunSuccess")["run"]["runId"]

    def materialize(self, asset: str) -> str:
        """Press "Materialize"; return the run's id."""
        chosen = {"jobName": "__ASSET_JOB", "assetSelection": [{"path": asset.split("/")}]}
        params = {"selector": {**LOCATION, **chosen}, "runConfigData": {}}
        return _only(self.ask(LAUNCH, params=params), "LaunchRunSuccess")["run"]["runId"]

    def terminate(self, run_id: str) -> None:
        """Press "Terminate"."""
        _only(self.ask(TERMINATE, run=run_id), "TerminateRunSuccess")

    def assets(self) -> dict[str, bool]:
        """All assets by name, and whether Dagster could materialize them."""
        nodes = self.ask(ASSETS)["assetNodes"]
        return {"/".join(node["assetKey"]["path"]): node["isMaterializable"] for node in nodes}

    def materializations(self, asset: str, *, limit: int = 100) -> list[Materialization]:
        """The latest of an asset, the newest first; none if it has never been seen."""
        answer = self.ask(MATERIALIZATIONS, asset={"path": asset.split("/")}, limit=limit)[
            "assetOrError"
        ]
        return [
            Materialization(event["runId"], float(event["timestamp"]) / 1000, _metadata(event))
            for event in answer.get("assetMaterializations", [])
        ]

    def checks(self, asset: str) -> dict[str, Check]:
        """The latest evaluation of all checks of an asset, by name."""
        key = {"path": asset.split("/")}
        node = _only(self.ask(CHECK_NAMES, asset=key), "AssetNode")
        checks = _only({"checks": node["assetChecksOrError"]}, "AssetChecks")["checks"]
        return {check["name"]: self._check(key, check["name"]) for check in checks}

    def sensor(self, name: str, *, ticks: int = 5, after: float | None = None) -> Sensor:
        """How a sensor stands, with its latest ticks."""
        selector = {**LOCATION, "sensorName": name}
        answer = _only(self.ask(SENSOR, sensor=selector, limit=ticks, after=after), "Sensor")
        state = answer["sensorState"]
        return Sensor(
            state["status"],
            [
                Tick(
                    tick["status"],
                    tick["timestamp"],
                    tick["endTimestamp"],
                    tuple(tick["runIds"]),
                    tick["skipReason"],
                    tick["error"]["message"] if tick["error"] else None,
                )
                for tick in state["ticks"]
            ],
        )

    def _runs(self, filter_: dict[str, Any]) -> list[Run]:
        return [
            Run(
                run["runId"],
                run["jobName"],
                run["status"],
                run["creationTime"],
                run["startTime"],
                run["endTime"],
                run["repositoryOrigin"]["repositoryLocationName"],
                {tag["key"]: tag["value"] for tag in run["tags"]},
            )
            for run in _only(self.ask(RUNS, filter=filter_), "Runs")["results"]
        ]

    def _check(self, key: dict[str, Any], name: str) -> Check:
        executions = self.ask(CHECK, asset=key, check=name)["assetCheckExecutions"]
        if not executions or not executions[0]["evaluation"]:
            return Check(None)
        found = executions[0]["evaluation"]
        return Check(
            found["success"],
            found["severity"],
            found["description"],
            executions[0]["timestamp"],
            _metadata(found),
        )


def _only(data: dict[str, Any], wanted: str) -> dict[str, Any]:
    [answer] = data.values()
    if answer["__typename"] != wanted:
        raise GraphQLError(f"not {wanted}: {answer}")
    return answer


def _metadata(event: dict[str, Any]) -> dict[str, Any]:
    """Values by label; None for the kinds that are not asked for."""
    return {
        entry["label"]: next(
            (value for name, value in entry.items() if name != "label" and value is not None), None
        )
        for entry in event["metadataEntries"]
    }
