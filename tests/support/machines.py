"""A deployment on several machines: each a group of processes that can lose its power.

Either with a code server on each, whose children the drains are, or with a worker of Celery.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml

from embed_pipeline.devserver.ports import free_port
from tests.support.dagster_deployment import without_own_settings
from tests.support.dagster_graphql import DagsterGraphQL
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import BIN, ROOT

CELERY = ROOT / "deploy/celery"


@dataclass
class Service:
    """One of Dagster's processes with all that it starts; a machine that can lose its power."""

    name: str
    command: list[str]
    environment: dict[str, str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Pull the plug: kill -9 for the process and whatever runs below it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a service manager does: everybody is told."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            self.process.wait()
            self.process = None


@dataclass
class Machines:
    """Code servers and workers of Celery by their names; web server and daemon have their own."""

    folder: Path
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    code_servers: dict[str, Service] = field(default_factory=dict)
    workers: dict[str, Service] = field(default_factory=dict)

    @property
    def ui(self) -> DagsterGraphQL:
        return DagsterGraphQL(self.url)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_code_server(self, name: str, port: int, **settings: str) -> None:
        module = ["--module-name", "embed_pipeline.definitions"]
        command = ["api", "grpc", "--host", "127.0.0.1", "--port", str(port), *module]
        self.code_servers[name] = self.service(name, "dagster", *command, **settings)

    def add_worker(self, name: str, **settings: str) -> None:
        command = ["--app", "dagster_celery.app", "worker", "--queues", "dagster"]
        # One place each: with more, one of them may do everything, and nothing would be wrong.
        named = ["--hostname", f"{name}@%h", "--loglevel", "INFO", "--concurrency", "1"]
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(CELERY)])}
        self.workers[name] = self.service(name, "celery", *command, *named, **path, **settings)

    def service(self, name: str, program: str, *arguments: str, **settings: str) -> Service:
        environment = {**self.environment, **settings}
        return Service(name, [str(BIN / program), *arguments], environment, self.folder)

    def wait_until_loaded(self) -> None:
        """Wait until the web server knows every code server."""
        wanted = dict.fromkeys(self.code_servers, "LOADED")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._states() != wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not loaded: {self._states()}; see {self.folder}/*.log")
            time.sleep(0.5)

    def _states(self) -> dict[str, str]:
        question = """{ workspaceOrError { ... on Workspace { locationEntries {
            name loadStatus locationOrLoadError { __typename } } } } }"""
        try:
            urllib.request.urlopen(f"{self.url}/server_info", timeout=5)
            entries = self.ui.ask(question)["workspaceOrError"]["locationEntries"]
        except OSError:
            return {}
        return {
            entry["name"]: entry["loadStatus"]
            for entry in entries
            if (entry["locationOrLoadError"] or {}).get("__typename") == "RepositoryLocation"
        }


@contextmanager
def running_machines(
    folder: Path,
    storage: str | None,
    environment: dict[str, str],
    *,
    code_servers: dict[str, dict[str, str]],
    workers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Iterator[Machines]:
    """Start everything; ``code_servers`` and ``workers`` are the settings of each by its name.

    Without ``storage`` Dagster keeps its own in files, which is enough where nobody is in a hurry.
    With ``workers`` the drains are tasks of Celery; ``CELERY_BROKER_URL`` says where.
    """
    instance = yaml.safe_load((ROOT / "deploy/docker/dagster.yaml").read_text())
    del instance["storage"]
    if storage:
        instance["storage"] = {"postgres": {"postgres_url": storage}}
    if workers:
        instance |= yaml.safe_load((CELERY / "run_launcher.yaml").read_text())
    (folder / "dagster.yaml").write_text(yaml.safe_dump(instance))
    home = {"DAGSTER_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    machines = Machines(folder, {**without_own_settings(), **environment, **home})
    ports = {name: free_port() for name in code_servers}
    entries = [
        {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": name}}
        for name, port in ports.items()
    ]
    (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": entries}))
    for name, settings in code_servers.items():
        machines.add_code_server(name, ports[name], **settings)
    for name, settings in workers.items():
        machines.add_worker(name, **settings)
    workspace = ("-w", str(folder / "workspace.yaml"))
    office = [
        machines.service("web", "dagster-webserver", "-p", str(machines.port), *workspace),
        machines.service("daemon", "dagster-daemon", "run", *workspace),
    ]
    with ExitStack() as stack:
        subprocess.run(
            [sys.executable, "-m", "dagster", "instance", "migrate"],
            env=machines.environment,
            check=True,
            capture_output=True,
        )
        for service in (*machines.code_servers.values(), *machines.workers.values(), *office):
            stack.callback(service.kill)
            service.start()
        machines.wait_until_loaded()
        yield machines
