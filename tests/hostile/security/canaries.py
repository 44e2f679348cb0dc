"""Words that nobody else uses, and a search for them in everything that a deployment leaves."""

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.dagster_deployment import Deployment
from tests.support.dagster_graphql import DagsterGraphQL

KEY = "canaryapikey-Zw83kQpLx0Vn"
"""Not in the form of OpenAI's keys: what looks like a key is masked anyhow."""
WRONG_PASSWORD = "canarywrongpassword-Tq41"
OBSERVATION = "Quetzalkoralle Zwirbelmond 4711081542426693, Ünsäglich"
"""What an entity's text says; no word of it stands anywhere else."""
WORDS = ("Quetzalkoralle", "Zwirbelmond", "4711081542426693", "Ünsäglich", "ns\\u00e4glich")

STEPS = """
query($run: ID!) { runOrError(runId: $run) { __typename ... on Run {
    runConfigYaml tags { key value } rootConcurrencyKeys
    executionPlan { steps { key metadata { key value } } }
    eventConnection { events { __typename
        ... on MessageEvent { message }
        ... on ExecutionStepFailureEvent { error { ...All } }
        ... on RunFailureEvent { error { ...All } }
        ... on ExecutionStepOutputEvent { metadataEntries { label description
            ... on TextMetadataEntry { text } ... on JsonMetadataEntry { jsonString }
            ... on MarkdownMetadataEntry { mdStr } } } } } } } }
fragment All on PythonError { message className stack causes { message className stack }
    errorChain { error { message stack } } }
"""

RESOURCES = """
{ repositoriesOrError { __typename ... on RepositoryConnection { nodes {
    name displayMetadata { key value } sensors { name description }
    pipelines { name description pipelineSnapshotId runTags { key value } }
    allTopLevelResourceDetails { name description
        configFields { name description defaultValueAsJson }
        configuredValues { key value type } } } } } }
"""

INSTANCE = "{ instance { info runLauncher { name } } version }"


@dataclass
class Evidence:
    """Texts by the place where they were found."""

    texts: dict[str, str] = field(default_factory=dict)

    def add(self, where: str, what: object) -> None:
        self.texts[where] = what if isinstance(what, str) else json.dumps(what, default=str)

    def places_of(self, canaries: Mapping[str, str]) -> list[str]:
        """Where canaries are, as "name: place"; empty if they are nowhere."""
        return [
            f"{name}: {where}"
            for where, text in self.texts.items()
            for name, canary in canaries.items()
            if canary in text
        ]

    def holds(self, text: str, *, where: str) -> bool:
        """Say whether a place whose name begins so holds the text."""
        return any(text in found for name, found in self.texts.items() if name.startswith(where))


def collect(dagster: Deployment, evidence: Evidence) -> None:
    """Take everything that the deployment has written or would say."""
    for path in files_of(dagster.project.folder):
        evidence.add(f"file {path.name}", path.read_bytes().decode("utf-8", errors="replace"))
        if is_sqlite(path):
            for table, cells in cells_of(path):
                evidence.add(f"sqlite {path.name} {table}", cells)
    for where, answer in answers_of(dagster.ui):
        evidence.add(f"graphql {where}", answer)
    rows = dagster.graph.run("MATCH (n) WHERE NOT n:Entity RETURN labels(n) AS labels, n {.*} AS n")
    evidence.add("graph", json.dumps(rows, default=str, ensure_ascii=False))


def files_of(folder: Path) -> list[Path]:
    """All but the code, which is a link; and the settings, where secrets belong."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != ".env"
    ]


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def cells_of(path: Path) -> Iterator[tuple[str, str]]:
    """Each table as text; Dagster keeps snapshots compressed, and a file cuts long texts."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
            yield name, "\n".join(readable(cell) for row in rows for cell in row)
    database.close()


def readable(cell: Any) -> str:
    if not isinstance(cell, bytes):
        return str(cell)
    with contextlib.suppress(zlib.error):
        cell = zlib.decompress(cell)
    return cell.decode("utf-8", errors="replace")


def answers_of(ui: DagsterGraphQL) -> Iterable[tuple[str, Any]]:
    yield "resources", ui.ask(RESOURCES)
    yield "instance", ui.ask(INSTANCE)
    for run in ui.runs():
        yield f"run {run.id}", ui.ask(STEPS, run=run.id)
    for asset in ui.assets():
        yield f"materializations of {asset}", [m.metadata for m in ui.materializations(asset)]
        yield f"checks of {asset}", {n: str(check) for n, check in ui.checks(asset).items()}
    for name in ("embed_backlog", "queue_metrics", "reconcile_entities", "stale_leases"):
        yield f"ticks of {name}", [str(tick) for tick in ui.sensor(name, ticks=100).ticks]
