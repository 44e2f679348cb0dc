"""Settings in, parts out: the one place where the layers get their values."""

from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Connection


def connection(settings: Settings) -> Connection:
    """Where Neo4j is, and who we are there."""
    return Connection(
        uri=settings.neo4j_uri,
        username=settings.neo4j_username,
        password=settings.neo4j_password,
        database=settings.neo4j_database,
    )


def open_embedder(settings: Settings) -> Embedder:
    """Open the provider; each is imported only when it is wanted, openai alone takes a second."""
    model, dimensions = settings.model, settings.dimensions
    match settings.provider:
        case Provider.OPENAI:
            from embed_pipeline.embedding.openai import OpenAIEmbedder

            key = settings.openai_api_key
            return OpenAIEmbedder(
                model=model,
                dimensions=dimensions,
                api_key=key.get_secret_value() if key else "",
                base_url=settings.openai_base_url,
            )
        case Provider.LOCAL:
            from embed_pipeline.embedding.local import LocalEmbedder

            return LocalEmbedder(model=model, dimensions=dimensions)
        case Provider.MOCK:
            from embed_pipeline.embedding.mock import MockEmbedder

            return MockEmbedder(model=model, dimensions=dimensions)
