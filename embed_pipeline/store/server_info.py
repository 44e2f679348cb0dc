"""What kind of server answers."""

from dataclasses import dataclass
from typing import Final, LiteralString

from neo4j import AsyncDriver, RoutingControl

OLDEST: Final = "5.26"

COMPONENTS: Final[LiteralString] = """
CALL dbms.components() YIELD name, versions, edition
WHERE name = 'Neo4j Kernel'
RETURN versions[0] AS version, edition
"""
APOC_PRESENT: Final[LiteralString] = """
SHOW FUNCTIONS YIELD name WHERE name = 'apoc.version' RETURN count(*) > 0 AS present
"""
APOC_VERSION: Final[LiteralString] = "RETURN apoc.version() AS version"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Version and edition of the server, and of APOC if it is there."""

    version: str
    edition: str
    apoc: str | None

    @property
    def is_supported(self) -> bool:
        """Say whether the server is one that the project is tested on, or newer."""
        return _numbers(self.version) >= _numbers(OLDEST)

    @property
    def apoc_fits(self) -> bool:
        """Say whether APOC is of the server's release: the first two numbers must agree."""
        return self.apoc is not None and _numbers(self.apoc) == _numbers(self.version)


async def read(driver: AsyncDriver, *, database: str) -> ServerInfo:
    """Ask the server for its versions; the first thing that is sent to it."""

    async def ask(statement: LiteralString) -> dict:
        result = await driver.execute_query(
            statement, database_=database, routing_=RoutingControl.READ
        )
        return result.records[0].data()

    kernel = await ask(COMPONENTS)
    has_apoc = (await ask(APOC_PRESENT))["present"]
    apoc = (await ask(APOC_VERSION))["version"] if has_apoc else None
    return ServerInfo(version=kernel["version"], edition=kernel["edition"], apoc=apoc)


def release_of(agent: str) -> tuple[int, ...]:
    """The version from the name of a server: ``Neo4j/5.26.30``."""
    return _numbers(agent.rpartition("/")[2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
