"""Settings and sites without an environment: what a test says, and defaults."""

from typing import Any

from embed_pipeline.defs.site import Site
from embed_pipeline.paths import ENV_FILE
from embed_pipeline.settings import Settings, load_settings
from tests.support.project import ROOT


def settings_of(**variables: Any) -> Settings:
    """The settings that these variables mean, whatever ``.env`` says."""
    nowhere = ROOT / "tests" / ENV_FILE
    return load_settings(nowhere, **{"EMBED_JOB_RETENTION_DAYS": 14, **variables})


def site_of(*embeddings: Settings, **variables: Any) -> Site:
    """A site of these embeddings, or of one with these variables."""
    return Site(embeddings or (settings_of(**variables),))
