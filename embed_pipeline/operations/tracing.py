"""What the traces say about drains and requests, by the semantic conventions of OpenTelemetry."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings
from embed_pipeline.tracing import call, trace_of
from embed_pipeline.worker.report import DrainReport


@contextmanager
def drain_trace(report: DrainReport, *, queue: str) -> Iterator[None]:
    """The trace of one drain; its report is read when it has ended."""
    about = {
        "messaging.system": "embed_pipeline",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.client.id": report.owner,
        "gen_ai.request.model": report.model,
    }
    with trace_of(f"drain {queue}", about) as span:
        try:
            yield
        finally:
            span.set_attributes(
                {
                    "embed_pipeline.ending": report.ending.name.lower() if report.ending else "",
                    "embed_pipeline.leased": report.leased,
                    "embed_pipeline.completed": report.completed,
                    "embed_pipeline.failed": report.failed.total(),
                    "embed_pipeline.fenced": report.fenced,
                    "embed_pipeline.requests": report.requests,
                    "gen_ai.usage.input_tokens": report.tokens,
                }
            )


@dataclass(frozen=True, slots=True)
class TracedEmbedder:
    """An embedder whose every request is a span, without the texts."""

    embedder: Embedder
    about: dict[str, str | int]

    @property
    def model(self) -> str:
        return self.embedder.model

    @property
    def dimensions(self) -> int:
        return self.embedder.dimensions

    @property
    def limits(self) -> RequestLimits:
        return self.embedder.limits

    def prepare(self, text: str) -> PreparedText:
        return self.embedder.prepare(text)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Send one request; its span has the number of texts and the cost."""
        inputs = {"embed_pipeline.inputs": len(texts)}
        with call(f"embeddings {self.model}", {**self.about, **inputs}) as span:
            embedded = await self.embedder.embed(texts)
            span.set_attribute("gen_ai.usage.input_tokens", embedded.tokens)
            return embedded

    async def close(self) -> None:
        await self.embedder.close()


def traced(embedder: Embedder, settings: Settings) -> Embedder:
    """The same embedder, with its requests in traces."""
    about: dict[str, str | int] = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": settings.provider.value,
        "gen_ai.request.model": embedder.model,
        "gen_ai.embeddings.dimension.count": embedder.dimensions,
    }
    if settings.provider is Provider.OPENAI:
        address = urlsplit(settings.openai_base_url or "https://api.openai.com/v1")
        port = address.port or (443 if address.scheme == "https" else 80)
        about |= {"server.address": address.hostname or "", "server.port": port}
    return TracedEmbedder(embedder, about)
