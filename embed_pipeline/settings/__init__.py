"""Every environment variable, checked together; a wrong one stops the start with a list."""

from embed_pipeline.settings.embeddings import settings_for
from embed_pipeline.settings.load import load_settings, warnings
from embed_pipeline.settings.operations import Settings

__all__ = ["Settings", "load_settings", "settings_for", "warnings"]
