"""The border between this project and Dagster: errors cross it redacted and alone.

Dagster stores an error with its stack, its cause and its context in the event log, prints it into
the compute log, and shows it to everybody. Errors of libraries quote what they were given: headers
with the key, texts of entities, parameters of statements.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import dagster as dg

from embed_pipeline.defs.config import RunConfig, read_config, schema_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.site import EMBEDDING, Site, group_in, name_in
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.redact import described, stack_of
from embed_pipeline.history.keys import asset_key
from embed_pipeline.settings import Settings
from embed_pipeline.settings.secrets import without_secrets

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def guarded(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Catch whatever ``function`` raises, and raise it redacted and without cause or context.

    For ops, assets, checks, sensors and schedules; also those that yield their results.
    """
    if inspect.isgeneratorfunction(function):
        return _guarded_generator(function)  # pyright: ignore[reportReturnType]

    @wraps(function)
    def guard(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            shown = _shown(error)
        # Outside of the handler: inside, Python would attach what was caught as context.
        raise shown

    return guard


def _guarded_generator(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @wraps(function)
    def guard(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
        except BaseException as error:
            shown = _shown(error)
        else:
            return
        raise shown

    return guard


@dataclass(frozen=True, slots=True)
class Op:
    """The body of an op: a function of the context, the resource, and a config if it has one."""

    function: Callable[..., None]

    @property
    def name(self) -> str:
        return self.function.__name__

    def of(self, site: Site) -> dg.OpDefinition:
        """The op for a site; its run config is read inside the border."""
        function = self.function
        wanted = inspect.signature(function).parameters.get("config")
        config: type[RunConfig] | None = wanted.annotation if wanted else None

        @wraps(function)
        def work(context: dg.OpExecutionContext) -> None:
            given = dict(context.op_config or {})
            neo4j = _resource(context, site, given.pop(EMBEDDING, site.first.queue))
            extra = {} if config is None else {"config": read_config(config, given)}
            function(context, neo4j=neo4j, **extra)

        guard = guarded(work)
        guard.__signature__ = inspect.Signature(
            [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        )
        made = dg.op(
            name=site.name(self.name),
            description=inspect.getdoc(function),
            config_schema=schema_of(config, site),
            required_resource_keys={site.neo4j},
            out=dg.Out(io_manager_key=site.io_manager),
        )
        return made(guard)


def op(function: Callable[..., None]) -> Op:
    """Declare an op; ``Job`` makes it."""
    return Op(function)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of one op, with its description."""

    name: str
    description: str
    op: Op
    tags: Mapping[str, str] = field(default_factory=dict)

    def of(self, site: Site) -> dg.JobDefinition:
        """The job of a site."""
        made = self.op.of(site)

        def compose() -> None:
            made()

        return dg.job(
            name=site.name(self.name),
            description=self.description,
            executor_def=dg.in_process_executor,
            tags=self.tags,
        )(compose)


def job(work: Op, *, tags: Mapping[str, str] | None = None) -> Callable[[Callable[[], None]], Job]:
    """Declare a job with this op; the docstring is the job's description."""

    def declare(function: Callable[[], None]) -> Job:
        return Job(function.__name__, inspect.getdoc(function) or "", work, tags or {})

    return declare


def asset(site: Site, settings: Settings, name: str, **options: Any) -> Callable[..., Any]:
    """Make an asset of an embedding, from a function of the context and the resource."""
    made = dg.asset(
        key=asset_key(name, settings.queue),
        required_resource_keys={site.neo4j},
        io_manager_key=site.io_manager,
        config_schema={},
        kinds=options.pop("kinds", {"neo4j"}),
        group_name=group_in(settings.queue, options.pop("group_name")),
        **options,
    )
    return lambda function: made(_with_resource(function, site, settings))


def checks(
    site: Site, settings: Settings, specs: list[dg.AssetCheckSpec]
) -> Callable[..., dg.AssetChecksDefinition]:
    """Make checks of an embedding, from a generator of their results."""

    def decorate(function: Callable[..., Iterator[Any]]) -> dg.AssetChecksDefinition:
        # Its name is that of an op: that of a second embedding would repeat it.
        made = dg.multi_asset_check(
            name=name_in(settings.queue, function.__name__),
            description=inspect.getdoc(function),
            specs=specs,
            can_subset=True,
            config_schema={},
            required_resource_keys={site.neo4j},
        )
        return made(_with_resource(function, site, settings))

    return decorate


def _with_resource(
    function: Callable[..., Any], site: Site, settings: Settings
) -> Callable[..., Any]:
    """Pass in the resource of one embedding, inside the border."""
    annotation = inspect.signature(function).parameters["context"].annotation

    @wraps(function)
    def work(context: Any) -> Any:
        return function(context, _resource(context, site, settings.queue))

    @wraps(function)
    def work_in_steps(context: Any) -> Iterator[Any]:
        yield from work(context)

    guard = guarded(work_in_steps if inspect.isgeneratorfunction(function) else work)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    guard.__signature__ = inspect.signature(function).replace(
        parameters=[inspect.Parameter("context", kind, annotation=annotation)]
    )
    return guard


def _resource(context: Any, site: Site, queue: str) -> Neo4jResource:
    return getattr(context.resources, site.neo4j).of(queue)


def _shown(error: BaseException) -> BaseException:
    """The redacted message of an error, with the stack of where it happened."""
    if isinstance(error, dg.Failure):
        shown = dg.Failure(
            without_secrets(error.description or ""),
            metadata=error.metadata,
            allow_retries=error.allow_retries,
        )
    elif isinstance(error, dg.RetryRequested) or not isinstance(error, Exception):
        # Signals to Dagster and to Python: they must stay what they are.
        error.__cause__ = error.__context__ = None
        return error
    elif isinstance(error, EmbedPipelineError):
        shown = dg.Failure(without_secrets(str(error)))
    else:
        shown = dg.Failure(
            f"Unexpected error: {described(error)}. Its own words are not shown, because they may "
            "quote a secret or a text; the stack says where it happened. Please report it.",
            metadata={"stack": without_secrets(stack_of(error))},
        )
    return shown.with_traceback(error.__traceback__)
