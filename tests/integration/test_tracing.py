"""One trace per drain, as a collector sees it, from a real process; no text in any of it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.responses import Response

from embed_pipeline import tracing
from embed_pipeline.domain.profiles import PROFILES
from embed_pipeline.store.connection import open_driver
from tests.conftest import TestServer
from tests.support.batch_server import batch_server
from tests.support.openai_server import KEY, OpenAIServer, failure, openai_server
from tests.support.otlp_receiver import Received, attributes, otlp_receiver
from tests.support.project import BIN, Project
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

CANARY = "canary-7f3a"
"""In every text, so that it is found wherever a text is."""
BAD = f"{CANARY} refused"


@dataclass
class Traced:
    """What a collector heard of a drain, and what its provider was asked."""

    received: Received
    provider: OpenAIServer

    def named(self, start: str) -> list[Span]:
        return [span for span in self.received.spans if span.name.startswith(start)]


def refusing(body: dict[str, Any]) -> Response | None:
    """Refuse a bad text, and quote it, as providers do."""
    texts = [text for text in body["input"] if BAD in text]
    return failure(400, f"cannot embed: {texts[0]}", "invalid_input") if texts else None


@pytest.fixture(scope="module")
async def traced(neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """A drain of five texts, one of which is refused."""
    async with open_driver(neo4j_server.connection) as driver:
        queue = Neo4jUnderTest(driver, neo4j_server.database)
        await queue.wipe()
        for number in range(4):
            await queue.put_entity(f"entity-{number}", f"{CANARY} {number}")
        await queue.put_entity("entity-bad", BAD)
    project = Project(tmp_path_factory.mktemp("project"))
    with openai_server() as provider, otlp_receiver() as received:
        provider.answer_with = refusing
        environment = {
            **neo4j_server.environment,
            "EMBED_JOB_RETENTION_DAYS": "14",
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_MODEL": MODEL,
            "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": provider.base_url,
            "EMBEDDING_PROFILE": "openai",
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint,
        }
        assert project.run("reconcile", **environment).returncode == 0
        project.run("drain", **environment)
    return Traced(received, provider)


async def test_m129_a_drain_is_one_trace(traced: Traced) -> None:
    [root] = traced.named("drain ")

    assert {span.trace_id for span in traced.received.spans} == {root.trace_id}
    assert {span.name for span in traced.received.spans} >= {
        "drain default",
        f"embeddings {MODEL}",
        "lease default",
        "load default",
        "complete_all default",
        "fail default",
        "acquire default",
    }
    about = attributes(root)
    assert about["messaging.destination.name"] == "default"
    assert about["messaging.operation.name"] == "drain"
    assert (about["embed_pipeline.ending"], about["embed_pipeline.completed"]) == ("empty", 4)
    assert about["embed_pipeline.failed"] == 1
    assert traced.received.services == {"embed-pipeline"}


PROJECT = """\
from embed_pipeline import build_defs, load_settings

defs = build_defs(load_settings())
"""
OWN_SDK = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "theirs"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""


@pytest.mark.parametrize(
    ("code", "service"),
    [
        pytest.param(PROJECT, "embed-pipeline", id="ours"),
        pytest.param(PROJECT + OWN_SDK, "theirs", id="theirs", marks=pytest.mark.proof),
    ],
)
async def test_m129_a_drain_in_a_dagster_project_of_ones_own_is_a_trace(
    neo4j_server: TestServer, tmp_path: Path, code: str, service: str
) -> None:
    async with open_driver(neo4j_server.connection) as driver:
        queue = Neo4jUnderTest(driver, neo4j_server.database)
        await queue.wipe()
        await queue.put_entity("ada", "text")
    (tmp_path / "project.py").write_text(code)
    project = Project(tmp_path)
    with otlp_receiver() as received:
        environment = {
            **neo4j_server.environment,
            "DAGSTER_HOME": str(tmp_path),
            "EMBED_JOB_RETENTION_DAYS": "14",
            "EMBEDDING_PROVIDER": "mock",
            "EMBEDDING_MODEL": MODEL,
            "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint,
        }
        assert project.run("reconcile", **environment).returncode == 0
        command = ("job", "execute", "-f", "project.py", "-j", "drain_embed_queue")
        run = project.run_program(str(BIN / "dagster"), *command, **environment)

    assert run.returncode == 0, run.stderr
    [root] = [span for span in received.spans if span.name == "drain default"]
    assert attributes(root)["embed_pipeline.completed"] == 1
    assert received.services == {service}


async def test_m129_requests_and_transactions_follow_the_conventions(traced: Traced) -> None:
    requests = [attributes(span) for span in traced.named("embeddings ")]
    [transaction, *_] = [attributes(span) for span in traced.named("complete_all ")]

    assert len(requests) == len(traced.provider.requests)
    assert requests[0] == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": MODEL,
        "gen_ai.embeddings.dimension.count": DIMENSIONS,
        "server.address": "127.0.0.1",
        "server.port": traced.provider.port,
        "embed_pipeline.inputs": 5,
        "error.type": "PermanentError",
    }
    assert any(about.get("gen_ai.usage.input_tokens") for about in requests)
    assert transaction == {
        "db.system.name": "neo4j",
        "db.namespace": "neo4j",
        "db.operation.name": "complete_all",
    }


async def test_m129_a_lease_says_how_many_jobs_it_received(traced: Traced) -> None:
    leases = [attributes(span) for span in traced.named("lease ")]

    received = [lease for lease in leases if lease["messaging.batch.message_count"]]
    assert {lease["messaging.operation.type"] for lease in leases} == {"receive"}
    assert {lease["messaging.operation.name"] for lease in leases} == {"lease"}
    assert sum(lease["messaging.batch.message_count"] for lease in received) >= 5


async def test_m129_no_text_and_no_key_is_in_what_is_exported(traced: Traced) -> None:
    sent = b"".join(traced.received.bodies)

    assert any(CANARY in text for body in traced.provider.requests for text in body["input"])
    assert CANARY.encode() not in sent
    assert KEY.encode() not in sent
    assert not any(span.events for span in traced.received.spans)


COLLECT = """
import asyncio
from embed_pipeline import tracing
from embed_pipeline.domain.profiles import PROFILES
from embed_pipeline.operations import wiring
from embed_pipeline.operations.batches import tend_batches
from embed_pipeline.settings import load_settings

async def main():
    settings = load_settings()
    for collects in (False, True):
        async with wiring.opened_queue(settings) as queue:
            await tend_batches(queue, settings, collects=collects)

tracing.export_spans()
asyncio.run(main())
"""


@dataclass
class TracedBatch:
    """What a collector heard of a batch, from its submission to its end."""

    submitted: Received
    collected: Received
    port: int

    @property
    def about(self) -> dict[str, Any]:
        """What every call says."""
        return {
            "gen_ai.provider.name": "azure.ai.openai",
            "gen_ai.request.model": MODEL,
            "gen_ai.embeddings.dimension.count": DIMENSIONS,
            "server.address": "127.0.0.1",
            "server.port": self.port,
        }


def described(received: Received, start: str) -> dict[str, Any]:
    [found] = [span for span in received.spans if span.name.startswith(f"{start} ")]
    return attributes(found)


@pytest.fixture(scope="module")
async def batch(neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> TracedBatch:
    """Five texts in a batch, which a process of its own collects as the job does."""
    async with open_driver(neo4j_server.connection) as driver:
        queue = Neo4jUnderTest(driver, neo4j_server.database)
        await queue.wipe()
        for number in range(5):
            await queue.put_entity(f"entity-{number}", f"{CANARY} {number}")
        project = Project(
            tmp_path_factory.mktemp("project"),
            {
                **neo4j_server.environment,
                "EMBED_JOB_RETENTION_DAYS": "14",
                "EMBEDDING_PROVIDER": "openai",
                "EMBEDDING_MODEL": MODEL,
                "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
                "EMBEDDING_PROFILE": "azure",
                "EMBEDDING_BATCH_LEAST": "5",
                "OPENAI_API_KEY": KEY,
            },
        )
        with batch_server() as api, otlp_receiver() as first, otlp_receiver() as second:
            project.environment["OPENAI_BASE_URL"] = api.base_url
            assert project.run("reconcile").returncode == 0
            project.run("drain", "--batch", OTEL_EXPORTER_OTLP_ENDPOINT=first.endpoint)
            await queue.run("MATCH (b:EmbedBatch) SET b.polled_at = null")
            done = project.run_program(
                sys.executable, "-c", COLLECT, OTEL_EXPORTER_OTLP_ENDPOINT=second.endpoint
            )
            assert done.returncode == 0, done.stderr
            return TracedBatch(first, second, api.port)


async def test_m129_the_calls_about_a_batch_are_in_the_trace_of_the_drain(
    batch: TracedBatch,
) -> None:
    drain = described(batch.submitted, "drain")
    [root] = [span for span in batch.submitted.spans if span.name.startswith("drain ")]
    upload = described(batch.submitted, "upload_batch")
    create = described(batch.submitted, "create_batch")

    assert {span.trace_id for span in batch.submitted.spans} == {root.trace_id}
    assert drain["messaging.operation.name"] == "drain"
    assert upload == {**batch.about, "gen_ai.operation.name": "upload_batch"}
    assert create == {**batch.about, "gen_ai.operation.name": "create_batch"}


async def test_m129_a_collection_is_one_trace_and_a_look_is_none(batch: TracedBatch) -> None:
    [root] = [span for span in batch.collected.spans if span.name.startswith("collect ")]
    about = attributes(root)
    answers = described(batch.collected, "read_batch_answers")

    assert {span.trace_id for span in batch.collected.spans} == {root.trace_id}
    assert about["messaging.operation.name"] == "collect"
    assert about["messaging.destination.name"] == "default"
    assert about["embed_pipeline.completed"] == 5
    assert answers == {
        **batch.about,
        "gen_ai.operation.name": "read_batch_answers",
        "messaging.batch.message_count": 5,
        "gen_ai.usage.input_tokens": 35,
    }
    assert described(batch.collected, "read_batch")["gen_ai.operation.name"] == "read_batch"


async def test_m129_no_text_and_no_key_is_in_what_is_exported_of_a_batch(
    batch: TracedBatch,
) -> None:
    sent = b"".join([*batch.submitted.bodies, *batch.collected.bodies])

    assert sent
    assert CANARY.encode() not in sent
    assert KEY.encode() not in sent


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("openai", "openai"),
        ("azure", "azure.ai.openai"),
        ("gemini", "gcp.gemini"),
        ("mistral", "mistral_ai"),
        ("vllm", "vllm"),
    ],
)
def test_m129_the_provider_is_named_as_the_conventions_do(profile: str, name: str) -> None:
    assert PROFILES[profile].traced_as == name


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_EXPORTER", "console")],
)
async def test_m129_what_cannot_be_spoken_is_said_and_not_exported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv(name, value)
    before = tracing.trace.get_tracer_provider()

    tracing.export_spans()

    assert tracing.trace.get_tracer_provider() is before
    assert f"{name} is '{value}', so no traces are exported" in caplog.text


async def test_m129_without_the_variables_nothing_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in tracing.SWITCHES:
        monkeypatch.delenv(name, raising=False)
    before = tracing.trace.get_tracer_provider()

    tracing.export_spans()

    assert tracing.trace.get_tracer_provider() is before
    with tracing.trace_of("drain", {}) as span:
        assert not span.is_recording()
