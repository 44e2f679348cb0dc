"""A whole deployment; those who are content with the ordinary one share it in a module."""

from collections.abc import Iterator

import pytest
from neo4j import GraphDatabase

from tests.conftest import TestServer
from tests.support.dagster_deployment import Deployment, Graph, deployment
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


@pytest.fixture
def graph(neo4j_server: TestServer) -> Iterator[Graph]:
    """The graph of the session's server, empty."""
    auth = (neo4j_server.username, neo4j_server.password)
    with GraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
        graph = Graph(driver, neo4j_server.database)
        graph.run("MATCH (n) DETACH DELETE n")
        yield graph
        graph.run("MATCH (n) DETACH DELETE n")
