"""``embed-pipeline mcp``: what agents may ask, over the Model Context Protocol; read only."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from embed_pipeline.cli.base import chosen_settings
from embed_pipeline.domain.errors import ConfigurationError, EmbedPipelineError
from embed_pipeline.domain.redact import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.server.mcpserver import MCPServer

    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

MOST_HITS: Final = 50
LONGEST_TEXT: Final = 2_000
"""Characters of a text that an agent gets: what it reads is paid for."""
INSTRUCTIONS: Final = (
    "Semantic search over a knowledge graph in Neo4j whose entities are kept embedded. Use "
    "search_graph to find entities by meaning; explain_entity when one that should be there is not "
    "found; embedding_status to see how much of the graph can be found now. Nothing can be changed."
)


def mcp() -> None:
    """Serve agents over the Model Context Protocol, on standard input and output; read only.

    Claude Desktop and others start it by themselves: docs/mcp.md has their settings.
    """
    server_for(chosen_settings()).run()


def server_for(settings: Settings) -> MCPServer:
    """The server with its three tools; connects to Neo4j anew for each call.

    So it starts while Neo4j is down, outlives its restarts, and says so to callers then.

    Raises:
        ConfigurationError: the extra is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        raise ConfigurationError(
            "the MCP server needs a package that is not installed: "
            "pip install 'embed-pipeline[mcp]'"
        ) from None
    server = MCPServer("embed-pipeline", instructions=INSTRUCTIONS, log_level="WARNING")
    looks = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True)

    @server.tool(annotations=looks)
    async def search_graph(question: str, limit: int = 10) -> dict[str, Any]:
        """Find the entities of the knowledge graph that are nearest to a question in meaning.

        Each hit has the sentence that matches best (because), its relations in words, its text (of
        a long one the passage that was found, if it is kept, and the beginning), and a score: 1 is
        the same meaning. limit is 1 to 50.
        """
        async with _asked(settings, for_vectors=True) as (queue, live):
            return await _search(queue, live, question, limit)

    @server.tool(annotations=looks)
    async def explain_entity(name: str) -> dict[str, Any]:
        """Say why search_graph finds an entity, or does not: why is a sentence.

        Its vector may be missing, waiting or failed, of an older text, or of another model. name is
        the key of the entity, as search_graph calls it.
        """
        from embed_pipeline.cli.explain import job_line
        from embed_pipeline.operations.explaining import explain

        async with _asked(settings) as (queue, live):
            found = await explain(queue, live, name)
        return {
            "name": found.entity,
            "is_found": found.is_found,
            "why": found.why,
            "text": found.text[:LONGEST_TEXT],
            "jobs": [job_line(job) for job in found.jobs],
        }

    @server.tool(annotations=looks)
    async def embedding_status() -> dict[str, str]:
        """Say how much of the graph can be found now, what waits, what failed, how fast it goes.

        Look here when search_graph finds nothing or too little.
        """
        from embed_pipeline.cli.status import look, rows_about

        async with _asked(settings) as (queue, live):
            said = {"Model": live.model}
            for name, value in rows_about(await look(queue, live, settings), live):
                # Several things may not fit.
                said[name] = f"{said[name]}; {value}" if name in said else value
            return said

    return server


async def _search(queue: Queue, live: Settings, question: str, limit: int) -> dict[str, Any]:
    from embed_pipeline.operations.search import search_for
    from embed_pipeline.store.explain import relations_of

    if not question.strip() or not 1 <= limit <= MOST_HITS:
        raise ConfigurationError(f"ask a question, and for 1 to {MOST_HITS} hits")
    hits = await search_for(queue, live, question, limit=limit, is_counted=False)
    relations = await relations_of(queue, [hit.uid for hit in hits])
    found = [
        {
            "name": hit.uid,
            "type": hit.type,
            "score": round(hit.score, 3),
            "because": hit.sentence,
            "relations": relations.get(hit.uid, []),
            # Of a long text the beginning hardly says why it was found.
            **({} if hit.passage in (None, hit.text) else {"passage": hit.passage[:LONGEST_TEXT]}),
            "text": hit.text[:LONGEST_TEXT],
        }
        for hit in hits
    ]
    note = {} if found else {"note": "nothing is embedded yet; embedding_status says how it goes"}
    return {"hits": found, **note}


@asynccontextmanager
async def _asked(
    settings: Settings, *, for_vectors: bool = False
) -> AsyncGenerator[tuple[Queue, Settings]]:
    """Open the live queue on a read-only driver; errors become messages without secrets."""
    from mcp.server.mcpserver.exceptions import ToolError

    from embed_pipeline.operations.following import opened_live
    from embed_pipeline.settings.secrets import without_secrets
    from embed_pipeline.store.read_only import open_reading_driver

    try:
        async with opened_live(
            settings, for_drain=for_vectors, opener=open_reading_driver
        ) as opened:
            yield opened
    except EmbedPipelineError as error:
        raise ToolError(without_secrets(str(error))) from None
    except Exception as error:
        from traceback import format_exception

        sys.stderr.write(printable(without_secrets("".join(format_exception(error)))) + "\n")
        raise ToolError(f"{type(error).__name__}; the server's log has the rest") from None
