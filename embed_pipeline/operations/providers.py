"""Opens the provider that the settings name."""

from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings


def open_provider(settings: Settings, *, for_questions: bool = False) -> Embedder:
    """Open the provider, imported on demand: openai alone takes a second."""
    model, dimensions = settings.model, settings.dimensions
    match settings.provider:
        case Provider.OPENAI:
            from embed_pipeline.embedding.openai import OpenAIEmbedder

            return OpenAIEmbedder(
                model=model,
                dimensions=dimensions,
                api_key=key.get_secret_value() if (key := settings.openai_api_key) else "",
                base_url=settings.openai_base_url,
                profile=settings.profile,
                for_questions=for_questions,
            )
        case Provider.OWN:
            from embed_pipeline.embedding.own import open_own

            return open_own(
                settings.embedding_provider,
                model=model,
                dimensions=dimensions,
                for_questions=for_questions,
            )
        case Provider.LOCAL | Provider.LOCAL_FAST as provider:
            from embed_pipeline.embedding.local import open_local

            return open_local(provider, model=model, dimensions=dimensions)
        case Provider.MOCK:
            from embed_pipeline.embedding.mock import MockEmbedder

            return MockEmbedder(model=model, dimensions=dimensions)
