"""The embeddings as a component in anybody's Dagster project.

``dg scaffold defs embed_pipeline.EmbedPipelineComponent embeddings --label Movie --key title``
writes a ``defs.yaml``; addresses, keys and limits are variables, never attributes.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import dagster as dg
from pydantic import BaseModel, Field

from embed_pipeline.defs.build import build_defs
from embed_pipeline.settings.embeddings import TOP, read_embeddings
from embed_pipeline.settings.load import RETENTION_EXAMPLE

ATTRIBUTES: Final = "attributes"
OTHERWISE: Final = {"EMBED_JOB_RETENTION_DAYS": RETENTION_EXAMPLE}


class EmbeddingAttributes(dg.Model, dg.Resolvable):
    """One embedding: which nodes, which text of them, which model."""

    name: str = Field(description="Name of the queue, and first part of the asset keys.")
    label: str = Field(description="Label of the nodes to embed.")
    key: str | None = Field(default=None, description="Property that identifies a node. [name]")
    version: str | None = Field(default=None, description="Property with its version. [version]")
    valid_to: str | None = Field(default=None, description="Property with the end of a version.")
    order: str | None = Field(default=None, description="Property that orders versions.")
    type: str | None = Field(default=None, description="Property with the type. [entityType]")
    observations: str | None = Field(default=None, description="Property with the prose.")
    text: str | None = Field(
        default=None, description="What is embedded, with properties in braces: '{title}: {plot}'."
    )
    relations_types: str | None = Field(
        default=None, description="Types of relationships that {relations} stands for. [all]"
    )
    relations_direction: Literal["both", "out", "in"] | None = Field(
        default=None, description="Their directions. [both]"
    )
    relations_most: int | None = Field(
        default=None, description="Neighbours per direction in the text. [10]"
    )
    relations_word: str | None = Field(
        default=None, description="Property of a relationship that says what it means."
    )
    relations_names: str | None = Field(
        default=None, description="Properties that name a neighbour. [key]"
    )
    relations_delay_ms: int | None = Field(
        default=None, description="Milliseconds that a change of neighbours waits. [300000]"
    )
    pieces: Literal["mean", "nodes"] | None = Field(
        default=None, description="What becomes of the pieces of a text. [mean]"
    )
    pieces_tokens: int | None = Field(
        default=None, description="Tokens of a piece that is a node. [256]"
    )
    pieces_most: int | None = Field(
        default=None, description="Pieces of one entity that are nodes. [1000]"
    )
    vector: str | None = Field(default=None, description="Property for the vector. [embedding]")
    index: str | None = Field(default=None, description="Name of the vector index.")
    provider: str | None = Field(
        default=None,
        description="Who makes the vectors: auto, openai, local, local-fast, mock or "
        "python:package.module:Class. [EMBEDDING_PROVIDER]",
    )
    # Called model in the file: that name is taken here, by Dagster.
    embedding_model: Annotated[
        str | None,
        dg.Resolver(
            lambda context, model: context.resolve_value(model),
            model_field_type=str | None,
            model_field_name="model",
            description="The embedding model. [EMBEDDING_MODEL]",
        ),
    ] = None
    dimensions: int | None = Field(default=None, description="Length of a vector.")
    profile: str | None = Field(
        default=None, description="What the server takes in a request. [by its address]"
    )
    max_inputs: int | None = Field(default=None, description="Texts in one request, at most.")
    max_tokens: int | None = Field(default=None, description="Tokens of one text, at most.")
    max_request_tokens: int | None = Field(
        default=None, description="Tokens of all texts in one request, at most."
    )
    encoding: Literal["base64", "float"] | None = Field(
        default=None, description="How vectors are asked for. [as the profile says]"
    )
    send_dimensions: Literal["true", "false"] | None = Field(
        default=None, description="Whether requests name the length. [as the profile says]"
    )
    document_prefix: str | None = Field(
        default=None, description="Text before every text that is embedded, and each piece of it."
    )
    question_prefix: str | None = Field(
        default=None, description="Text before every question that is searched for."
    )
    type_field: str | None = Field(
        default=None, description="Field of a request that tells documents from questions."
    )
    document_type: str | None = Field(
        default=None, description="Its value for documents. [as the profile says]"
    )
    question_type: str | None = Field(
        default=None, description="Its value for questions. [as the profile says]"
    )
    account: str | None = Field(
        default=None, description="The account whose rate limit and budget it shares."
    )
    mode: Literal["sync", "batch"] | None = Field(
        default=None,
        description="batch: large backlogs wait up to a day and cost half. [sync]",
    )
    batch_least: int | None = Field(
        default=None, description="The least number of due jobs that make a batch. [1000]"
    )
    drains_at_once: int | None = Field(default=None, description="Drains at the same time. [2]")
    standby: Literal["true", "false"] | None = Field(
        default=None, description="Whether a drain is always there. [false]"
    )
    objective_age_ms: int | None = Field(
        default=None, description="Milliseconds that the oldest job may wait before a check warns."
    )
    objective_failed_percent: int | None = Field(
        default=None, description="Percent of jobs that may be failed before a check warns."
    )
    objective_coverage_percent: int | None = Field(
        default=None, description="Percent of entities that must be current, or a check warns."
    )
    deps: list[str] = Field(
        default_factory=list,
        description="Keys of the assets that write the nodes; the embedding follows them.",
    )

    def said(self) -> dict[str, str]:
        """The attributes that were given, by their names in ``embeddings.yaml``."""
        values = {
            ("model" if name == "embedding_model" else name): getattr(self, name)
            for name in type(self).model_fields
            if name != "deps"
        }
        return {name: str(value) for name, value in values.items() if value is not None}


class ScaffoldParams(BaseModel):
    """What ``dg scaffold defs`` can be told."""

    label: str = Field(default="Entity", description="Label of the nodes to embed.")
    key: str = Field(default="name", description="Property that identifies a node.")
    text: str = Field(default="{name}", description="What is embedded: properties in braces.")


class EmbeddingScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes a ``defs.yaml`` with one embedding."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        said = request.params or ScaffoldParams()
        entry: dict[str, Any] = {
            "name": said.label.lower(),
            "label": said.label,
            "key": said.key,
            "text": said.text,
        }
        dg.scaffold_component(request, {TOP: [entry]})


@dg.scaffold_with(EmbeddingScaffolder)
class EmbedPipelineComponent(dg.Component, dg.Model, dg.Resolvable):
    """Keeps the nodes of a Neo4j graph embedded, through a durable queue in it.

    One set of jobs and sensors serves all embeddings of the list; each has its own assets and
    checks. NEO4J_URI, NEO4J_PASSWORD, OPENAI_API_KEY and the limits are variables.
    """

    embeddings: list[EmbeddingAttributes] = Field(description="What is embedded.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of all embeddings.

        Raises:
            ConfigurationError: lists every problem with its line.
        """
        path = Path(context.path) / "defs.yaml"
        values = [embedding.said() for embedding in self.embeddings]
        found = read_embeddings(path, below=(ATTRIBUTES,), values=values, otherwise=OTHERWISE)
        upstream = {
            embedding.name: [dg.AssetKey.from_user_string(key) for key in embedding.deps]
            for embedding in self.embeddings
        }
        return build_defs(*found, upstream=upstream)
