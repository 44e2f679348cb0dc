"""The border between this project and Dagster: errors cross it redacted and alone.

Dagster stores an error with its stack, its cause and its context in the event log, prints it into
the compute log, and shows it to everybody. Errors of libraries quote what they were given: headers
with the key, texts of entities, parameters of statements.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import dagster as dg

from embed_pipeline.defs.config import RunConfig, read_config, schema_of
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.redact import described, stack_of
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


def op(function: Callable[..., None]) -> dg.OpDefinition:
    """Make an op whose run config, if it has one, is read inside the border."""
    signature = inspect.signature(function)
    parameters = dict(signature.parameters)
    wanted = parameters.pop("config", None)
    config: type[RunConfig] | None = wanted.annotation if wanted else None

    @wraps(function)
    def work(context: dg.OpExecutionContext, **resources: Any) -> None:
        if config is not None:
            resources["config"] = read_config(config, context.op_config)
        function(context, **resources)

    guard = guarded(work)
    guard.__signature__ = signature.replace(parameters=list(parameters.values()))
    return dg.op(config_schema=schema_of(config))(guard)


def _shown(error: BaseException) -> BaseException:
    """What may be shown of an error, with the stack of where it happened."""
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
