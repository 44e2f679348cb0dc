"""A whole deployment; those who are content with the ordinary one share it in a module."""

from collections.abc import Iterator

import pytest

from tests.conftest import TestServer
from tests.support.dagster_deployment import Deployment, deployment
from tests.support.openai_server import openai_server
from tests.support.project import make_project


@pytest.fixture(scope="module")
def running(
    neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    project = make_project(tmp_path_factory.mktemp("project"))
    with openai_server() as provider, deployment(project, neo4j_server, provider) as started:
        yield started


@pytest.fixture
def dagster(running: Deployment) -> Deployment:
    """A deployment with an empty graph; the last drain may still wait for new jobs."""
    running.graph.wipe()
    return running
