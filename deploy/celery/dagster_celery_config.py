"""What a Celery worker reads; dagster_celery looks for this module by its name, on PYTHONPATH."""

import os

broker_url = result_backend = os.environ["CELERY_BROKER_URL"]
broker_connection_retry_on_startup = True

# Drains at once on this machine, and one place for the short runs that people start.
worker_concurrency = 3
# Nothing waits behind a drain of minutes while another worker is free. Without the second
# line a worker whose places are all taken reserves more runs: those under way no longer count.
worker_prefetch_multiplier = 1
worker_disable_prefetch = True
# Each drain in a process of its own, as with every other launcher.
worker_max_tasks_per_child = 1
# A run that vanishes with its worker must not be started again by the broker: its leases are
# recovered, and the sensor starts a new one.
task_acks_late = False
