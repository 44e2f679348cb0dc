"""``secrets`` in ``dagster.yaml``: lets the environment win over ``.env`` in Dagster's processes.

Each of them makes one of these when it opens the instance: after it has copied ``.env`` over its
environment, and before it loads code or starts other processes.
"""

from collections.abc import Mapping
from typing import Any, Self

from dagster._core.secrets.loader import SecretsLoader
from dagster._serdes import ConfigurableClass
from dagster._serdes.config_class import ConfigurableClassData

from embed_pipeline.settings.precedence import only_in_file, restore_environment


class EnvironmentFirst(SecretsLoader, ConfigurableClass):
    """Takes from ``.env`` only what the environment does not set."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        """Correct the environment at once: everything that follows reads it."""
        self._inst_data = inst_data
        restore_environment()

    def get_secrets_for_environment(self, location_name: str | None) -> Mapping[str, str]:  # noqa: ARG002 - Dagster's signature
        return only_in_file()

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> Self:
        return cls(inst_data, **config_value)
