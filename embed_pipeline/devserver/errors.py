"""The one error of this package: everything that is expected to go wrong with a local server."""

from embed_pipeline.domain.errors import EmbedPipelineError


class LocalServerError(EmbedPipelineError):
    """The message says what happened and what to do next."""
