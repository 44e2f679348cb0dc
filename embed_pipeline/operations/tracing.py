"""What the traces say about drains and requests, by the semantic conventions of OpenTelemetry."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from embed_pipeline.domain.batch import BatchAnswer, ProviderBatch
from embed_pipeline.domain.batch_ports import BatchProvider
from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings
from embed_pipeline.tracing import Span, call, trace_of
from embed_pipeline.worker.report import DrainReport


@contextmanager
def drain_trace(report: DrainReport, *, queue: str, operation: str = "drain") -> Iterator[None]:
    """The trace of one drain, or collection; its report is read when it has ended."""
    about = {
        "messaging.system": "embed_pipeline",
        "messaging.operation.name": operation,
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.client.id": report.owner,
        "gen_ai.request.model": report.model,
    }
    with trace_of(f"{operation} {queue}", about) as span:
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


@dataclass(frozen=True, slots=True)
class TracedBatches:
    """The provider's side of batches with a span for every call, without texts."""

    provider: BatchProvider
    model: str
    about: dict[str, str | int]

    def line(self, custom_id: str, text: PreparedText) -> bytes:
        return self.provider.line(custom_id, text)

    async def upload(self, path: Path, *, name: str) -> str:
        with self._call("upload_batch"):
            return await self.provider.upload(path, name=name)

    async def create(self, file: str, metadata: Mapping[str, str]) -> ProviderBatch:
        with self._call("create_batch"):
            return await self.provider.create(file, metadata)

    async def find(self, metadata: Mapping[str, str]) -> ProviderBatch | None:
        with self._call("find_batch"):
            return await self.provider.find(metadata)

    async def read(self, id_: str) -> ProviderBatch | None:
        with self._call("read_batch"):
            return await self.provider.read(id_)

    async def cancel(self, id_: str) -> None:
        with self._call("cancel_batch"):
            await self.provider.cancel(id_)

    async def answers(self, file: str) -> AsyncGenerator[BatchAnswer]:
        lines = tokens = 0
        with self._call("read_batch_answers", is_parent=False) as span:
            try:
                async with aclosing(self.provider.answers(file)) as answers:
                    async for answer in answers:
                        lines, tokens = lines + 1, tokens + (answer.tokens or 0)
                        yield answer
            finally:
                span.set_attributes(
                    {"messaging.batch.message_count": lines, "gen_ai.usage.input_tokens": tokens}
                )

    async def delete(self, file: str) -> None:
        with self._call("delete_batch_file"):
            await self.provider.delete(file)

    async def close(self) -> None:
        await self.provider.close()

    def _call(self, operation: str, *, is_parent: bool = True) -> AbstractContextManager[Span]:
        about = {**self.about, "gen_ai.operation.name": operation}
        return call(f"{operation} {self.model}", about, is_parent=is_parent)


def traced(embedder: Embedder, settings: Settings) -> Embedder:
    """The same embedder, with its requests in traces."""
    about = _about(settings, embedder.model, embedder.dimensions)
    return TracedEmbedder(embedder, {**about, "gen_ai.operation.name": "embeddings"})


def traced_batches(provider: BatchProvider, settings: Settings) -> BatchProvider:
    """The same provider of batches, with its calls in traces."""
    about = _about(settings, settings.model, settings.dimensions)
    return TracedBatches(provider, settings.model, about)


def _about(settings: Settings, model: str, dimensions: int) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "gen_ai.provider.name": settings.provider.value,
        "gen_ai.request.model": model,
        "gen_ai.embeddings.dimension.count": dimensions,
    }
    if settings.provider is Provider.OPENAI:
        address = urlsplit(settings.openai_base_url or "https://api.openai.com/v1")
        port = address.port or (443 if address.scheme == "https" else 80)
        about |= {
            "gen_ai.provider.name": settings.profile.traced_as,
            "server.address": address.hostname or "",
            "server.port": port,
        }
    return about
