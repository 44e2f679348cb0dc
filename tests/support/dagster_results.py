"""What a run in the test's own process did: its numbers, or its one error."""

from typing import Any

import dagster as dg


def figures(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The output metadata of the one op."""
    assert result.success, problem(result)
    return shown(result)


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The output metadata of the one op, plain; empty if it has not come to its end."""
    return {
        name: _plain(value)
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.STEP_OUTPUT
        for name, value in event.step_output_data.metadata.items()
    }


def problem(result: dg.ExecuteInProcessResult) -> str:
    """Why the op failed, as the page of the run shows it: the error and what caused it."""
    errors = [
        event.step_failure_data.error
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.STEP_FAILURE
    ]
    assert len(errors) == 1
    error, said = errors[0], ""
    while error is not None:
        said += error.message
        error = error.cause
    return said


def _plain(value: dg.MetadataValue) -> Any:
    if isinstance(value, dg.TableMetadataValue):
        return [dict(record.data) for record in value.records]
    return value.value
