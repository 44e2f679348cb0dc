"""The same queue and provider as those of the drains' own tests."""

from tests.acceptance.drain.conftest import provider, queue, running_provider

__all__ = ["provider", "queue", "running_provider"]
