"""What the queue needs in the database: its objects as data, their installation and inspection."""

from embed_pipeline.store.schema.installation import inspect, install, schema_objects
from embed_pipeline.store.schema.state import InstallReport, SchemaState

__all__ = ["InstallReport", "SchemaState", "inspect", "install", "schema_objects"]
