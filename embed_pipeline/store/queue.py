"""Everything about one queue, ready to use."""

from dataclasses import dataclass, replace
from datetime import timedelta

from neo4j import AsyncDriver

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.store.adoption import Neo4jAdoption
from embed_pipeline.store.audit import Neo4jAudit
from embed_pipeline.store.batches import Neo4jBatches
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import TRANSACTION_TIMEOUT, Clock, Database
from embed_pipeline.store.desk import Neo4jDesk
from embed_pipeline.store.identity import Neo4jIdentity
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.store.limiter import Neo4jRateLimiter
from embed_pipeline.store.lookout import Neo4jLookout
from embed_pipeline.store.metrics import Neo4jQueueMetrics
from embed_pipeline.store.purge import Neo4jPurge
from embed_pipeline.store.queue_admin import Neo4jQueueAdmin
from embed_pipeline.store.scan import Neo4jReconciler
from embed_pipeline.store.switch import Neo4jQueueSwitch
from embed_pipeline.store.triggers import Neo4jTriggers


@dataclass(frozen=True, slots=True)
class Queue:
    """The parts of a queue; all share one driver."""

    database: Database
    config: QueueConfig
    jobs: Neo4jJobStore
    admin: Neo4jQueueAdmin
    switch: Neo4jQueueSwitch
    metrics: Neo4jQueueMetrics
    purge: Neo4jPurge
    audit: Neo4jAudit
    identity: Neo4jIdentity
    adoption: Neo4jAdoption
    lookout: Neo4jLookout
    desk: Neo4jDesk
    batches: Neo4jBatches

    def acting_as(self, operator: Operator) -> "Queue":
        """The same queue; its changes are recorded as done by ``operator``."""
        return _assembled(replace(self.database, operator=operator), self.config)

    def limiter(self, limits: RateLimits, *, name: str = "default") -> Neo4jRateLimiter:
        """The shared rate limit of one provider."""
        return Neo4jRateLimiter(self.database, limits, name, self.config.secrets)

    def reconciler(self, model: str) -> Neo4jReconciler:
        return Neo4jReconciler(self.database, self.config, model)

    def triggers(self, model: str) -> Neo4jTriggers:
        return Neo4jTriggers(self.database, self.config, model)


def open_queue(
    driver: AsyncDriver,
    *,
    database: str = "neo4j",
    config: QueueConfig | None = None,
    clock: Clock | None = None,
    timeout: timedelta = TRANSACTION_TIMEOUT,
) -> Queue:
    """Build the parts; ``clock`` is for tests, production uses the server's clock."""
    config = config or QueueConfig()
    return _assembled(Database(driver, database, clock, timeout, queue=config.queue), config)


def _assembled(database: Database, config: QueueConfig) -> Queue:
    return Queue(
        database=database,
        config=config,
        jobs=Neo4jJobStore(database, config),
        admin=Neo4jQueueAdmin(database, config),
        switch=Neo4jQueueSwitch(database, config),
        metrics=Neo4jQueueMetrics(database, config),
        purge=Neo4jPurge(database, config),
        audit=Neo4jAudit(database, config),
        identity=Neo4jIdentity(database, config),
        adoption=Neo4jAdoption(database, config),
        lookout=Neo4jLookout(database, config),
        desk=Neo4jDesk(database, config),
        batches=Neo4jBatches(database, config),
    )
