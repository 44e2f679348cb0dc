"""Runs as Dagster stores them: with where they are from, and without the tag that says so."""

from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)


def origin_at(repository: str, job: str) -> RemoteJobOrigin:
    """Where a job is; ``repository`` is repository@location."""
    name, _, location = repository.partition("@")
    return RemoteJobOrigin(
        RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), name), job
    )
