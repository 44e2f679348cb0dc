"""Spans of OpenTelemetry: what is recorded, and where it goes.

Only the API is a dependency: without an SDK every span is nothing. A span carries names, counts and
kinds of errors, never a text, a vector, or the words of an error, which quote both.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

logger = logging.getLogger(__name__)

SWITCHES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
"""Standard variables; spans are exported where one of them is set."""
SPOKEN: Final = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
}
"""The one value of each standard variable that is understood here."""
SERVICE: Final = "embed-pipeline"

Attributes = Mapping[str, str | int]

_tracer: Final = trace.get_tracer("embed_pipeline")


@contextmanager
def trace_of(name: str, attributes: Attributes) -> Iterator[Span]:
    """The span of one consumer's work: a new trace, or part of the current one."""
    with _span(name, SpanKind.CONSUMER, attributes) as span:
        yield span


@contextmanager
def call(name: str, attributes: Attributes, *, is_parent: bool = True) -> Iterator[Span]:
    """A span for a call to a server; not recorded outside a trace.

    Else every look of a sensor would be a trace of its own. Without ``is_parent`` what happens
    meanwhile is beside it: an answer that is worked on while it arrives.
    """
    if not trace.get_current_span().get_span_context().is_valid:
        yield trace.INVALID_SPAN
        return
    with _span(name, SpanKind.CLIENT, attributes, is_parent=is_parent) as span:
        yield span


def note(attributes: Attributes) -> None:
    """Say more about what is under way."""
    trace.get_current_span().set_attributes(attributes)


@contextmanager
def _span(
    name: str, kind: SpanKind, attributes: Attributes, *, is_parent: bool = True
) -> Iterator[Span]:
    span = _tracer.start_span(name, kind=kind, attributes=attributes)
    # The words of an error quote texts, and its stack holds them.
    silent = {"record_exception": False, "set_status_on_exception": False}
    try:
        with trace.use_span(span, **silent) if is_parent else nullcontext():
            yield span
    except GeneratorExit:
        # Whoever reads has read enough.
        raise
    except BaseException as error:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR))
        raise
    finally:
        span.end()


def export_spans() -> None:
    """Send spans to the collector that ``OTEL_`` variables name; nothing is sent without them.

    A program that has set up an SDK of its own keeps it.
    """
    wanted = [name for name in SWITCHES if os.environ.get(name, "").strip() not in ("", "none")]
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not wanted or is_disabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return
    for name, value in SPOKEN.items():
        if (given := os.environ.get(name, "").strip()) not in ("", value):
            # Sent all the same, spans would be lost at a collector that cannot read them.
            logger.warning("%s is %r, so no traces are exported: only %s is", name, given, value)
            return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning(
            "%s is set, but nothing can export traces: pip install 'embed-pipeline[otel]'",
            wanted[0],
        )
        return
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over this name.
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": SERVICE}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
