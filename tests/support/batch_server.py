"""A server that speaks OpenAI's Batch API, on loopback; it counts what it charges for."""

import base64
import hashlib
import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from embed_pipeline.devserver.ports import free_port
from tests.support.openai_server import failure, vectors
from tests.support.serving import serving

DAY = 24 * 3600


@dataclass
class BatchServer:
    """What it holds and has charged for, and what it does wrong if told to."""

    port: int
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    charged: int = 0
    """Inputs that somebody has to pay for."""
    has_batches: bool = True
    is_done: bool = True
    """Batches are done at once; otherwise they are in progress."""
    hides: bool = False
    """The list and the single batch do not show what was just made."""
    drops_create: bool = False
    """Makes the batch, and answers that something broke."""
    refuses_file: str | None = None
    """Turns every batch to failed with this code."""
    refused: frozenset[str] = frozenset()
    """Texts that are refused, line by line."""
    failing: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Texts with the outcome of their lines."""
    upload_status: int | None = None
    """Answers so to every file that is sent."""
    expires_after: int | None = None
    """Does so many lines, then the window is over."""
    cuts: Literal["inside", "between"] | None = None
    """Ends an answer in its middle: inside a line, or between two."""
    takes_any_file: bool = False
    """Makes a batch of a file that is gone."""
    hangs: frozenset[str] = frozenset()
    """What is done and never answered: create, poll."""
    polls: int = 0
    """How often somebody asked about a single batch."""
    keeps_files: bool = False
    """Whoever asks may not delete a file."""
    deleted: list[str] = field(default_factory=list)
    asked: int = 0
    """Ordinary requests."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def upload(self, request: Request) -> Response:
        if not self.has_batches:
            return failure(404, "no such page", None)
        if self.upload_status:
            return failure(self.upload_status, "not now", None)
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        form = BytesParser(policy=HTTP).parsebytes(head + await request.body())
        [content] = [
            bytes(part.get_payload(decode=True))
            for part in form.iter_parts()
            if part.get_filename()
        ]
        return JSONResponse(self._file(self._keep("in", content)))

    async def content(self, request: Request) -> Response:
        content = self.files.get(request.path_params["id"])
        if content is None:
            return failure(404, "no such file", None)
        if not self.cuts:
            return Response(content)

        def half() -> Iterator[bytes]:
            middle = len(content) // 2
            yield content[
                : content.rindex(b"\n", 0, middle) + 1 if self.cuts == "between" else middle
            ]

        return StreamingResponse(half())

    async def remove(self, request: Request) -> Response:
        id_ = request.path_params["id"]
        if self.keeps_files:
            return failure(403, "this key may not delete files", None)
        if self.files.pop(id_, None) is None:
            return failure(404, "no such file", None)
        self.deleted.append(id_)
        return JSONResponse({"id": id_, "object": "file", "deleted": True})

    async def create(self, request: Request) -> Response:
        body = await request.json()
        if body["input_file_id"] not in self.files and not self.takes_any_file:
            return failure(400, "no such file", None)
        id_ = f"batch_{len(self.batches)}"
        self.batches[id_] = {
            "id": id_,
            "object": "batch",
            "endpoint": body["endpoint"],
            "input_file_id": body["input_file_id"],
            "completion_window": body["completion_window"],
            "metadata": body["metadata"],
            "created_at": int(time.time()),
            "expires_at": int(time.time()) + DAY,
            "status": "in_progress",
        }
        if self.refuses_file:
            errors = [{"code": self.refuses_file, "message": "no", "line": 1, "param": None}]
            self.batches[id_] |= {"status": "failed", "errors": {"object": "list", "data": errors}}
        elif self.is_done:
            self.finish(id_)
        if "create" in self.hangs:
            return await _never(request)
        if self.drops_create:
            return failure(500, "the answer got lost", None)
        return JSONResponse(self.batches[id_])

    async def embeddings(self, request: Request) -> Response:
        self.asked += 1
        return vectors(await request.json())

    async def every(self, _: Request) -> Response:
        data = [] if self.hides else list(self.batches.values())[::-1]
        return JSONResponse({"object": "list", "data": data, "has_more": False})

    async def one(self, request: Request) -> Response:
        self.polls += 1
        if "poll" in self.hangs:
            return await _never(request)
        found = self.batches.get(request.path_params["id"])
        if found is None or self.hides:
            return failure(404, "no such batch", None)
        return JSONResponse(found)

    async def cancel(self, request: Request) -> Response:
        batch = self.batches[request.path_params["id"]]
        if batch["status"] != "in_progress":
            return failure(400, "it is over", None)
        batch["status"] = "cancelled"
        return JSONResponse(batch)

    def finish(self, id_: str) -> None:
        """Do the work of a batch, and charge for it."""
        batch = self.batches[id_]
        lines = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        done: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for place, line in enumerate(lines):
            name = {"id": f"line_{place}", "custom_id": line["custom_id"]}
            [text] = line["body"]["input"]
            if self.expires_after is not None and place >= self.expires_after:
                error = {"code": "batch_expired", "message": "the window is over"}
                failed.append({**name, "response": None, "error": error})
            elif text in self.refused:
                error = {"type": "invalid_request_error", "code": None, "message": f"bad: {text}"}
                response = {"status_code": 400, "body": {"error": error}}
                failed.append({**name, "response": response, "error": None})
            elif text in self.failing:
                failed.append({**name, **self.failing[text]})
            else:
                self.charged += 1
                response = {"status_code": 200, "body": _embedded(line["body"])}
                done.append({**name, "response": response, "error": None})
        is_expired = self.expires_after is not None
        batch |= {
            "status": "expired" if is_expired else "completed",
            "output_file_id": self._keep("out", _jsonl(done[::-1])) if done else None,
            "error_file_id": self._keep("err", _jsonl(failed)) if failed else None,
            "request_counts": {
                "total": len(lines),
                "completed": len(done),
                "failed": len(failed),
            },
        }

    def _keep(self, kind: str, content: bytes) -> str:
        id_ = f"file_{kind}_{len(self.files) + len(self.deleted)}"
        self.files[id_] = content
        return id_

    def _file(self, id_: str) -> dict[str, Any]:
        return {
            "id": id_,
            "object": "file",
            "bytes": len(self.files[id_]),
            "created_at": int(time.time()),
            "filename": "x.jsonl",
            "purpose": "batch",
            "status": "processed",
        }


def line_outcome(status: int | None, code: str | None, kind: str = "error") -> dict[str, Any]:
    """What the error file says of one line; without a status the provider never asked."""
    error = {"type": kind, "code": code, "message": "no", "param": None}
    if status is None:
        return {"response": None, "error": error}
    return {"response": {"status_code": status, "body": {"error": error}}, "error": None}


def numbers_for(text: str, length: int) -> list[float]:
    """The vector of a text: the same for the same text, and hardly for another one."""
    digest = hashlib.sha256(text.encode()).digest()
    return [1.0 + digest[place % len(digest)] for place in range(length)]


async def _never(request: Request) -> Response:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


def _embedded(body: dict[str, Any]) -> dict[str, Any]:
    assert body["encoding_format"] == "base64"
    numbers = numbers_for(body["input"][0], body["dimensions"])
    vector = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _jsonl(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@contextmanager
def batch_server() -> Iterator[BatchServer]:
    """Serve until the block ends."""
    state = BatchServer(port=free_port())
    app = Starlette(
        routes=[
            Route("/v1/embeddings", state.embeddings, methods=["POST"]),
            Route("/v1/files", state.upload, methods=["POST"]),
            Route("/v1/files/{id}/content", state.content),
            Route("/v1/files/{id}", state.remove, methods=["DELETE"]),
            Route("/v1/batches", state.create, methods=["POST"]),
            Route("/v1/batches", state.every),
            Route("/v1/batches/{id}", state.one),
            Route("/v1/batches/{id}/cancel", state.cancel, methods=["POST"]),
        ]
    )
    with serving(app, state.port):
        yield state
