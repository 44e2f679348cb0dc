"""A collector of OpenTelemetry on loopback: what was exported to it, as spans."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Received:
    """What the collector was sent."""

    endpoint: str = ""
    bodies: list[bytes] = field(default_factory=list)
    """As they came, unzipped: whatever is in no span is in here, too."""

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[str]:
        return {
            attribute.value.string_value
            for request in self.requests
            for resource in request.resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }


def attributes(span: Span) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "")
        for attribute in span.attributes
    }


def tree(spans: list[Span]) -> str:
    """Spans as people read a trace: names, indented under what they are part of, in order."""

    def lines(parent: bytes, depth: int) -> Iterator[str]:
        below = [span for span in spans if span.parent_span_id == parent]
        for span in sorted(below, key=lambda span: span.start_time_unix_nano):
            milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
            yield f"{milliseconds:9.1f} ms  {'  ' * depth}{span.name}"
            for name, value in sorted(attributes(span).items()):
                yield f"{'':14}{'  ' * depth}  {name}={value}"
            yield from lines(span.span_id, depth + 1)

    return "\n".join(lines(b"", 0))


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """Receive until the block ends."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_zipped = self.headers.get("content-encoding") == "gzip"
            received.bodies.append(gzip.decompress(body) if is_zipped else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
