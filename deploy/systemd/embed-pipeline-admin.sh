#!/bin/sh
# Runs a command with the settings and secrets of the units, as root:
#
#     sudo /opt/embed-pipeline/deploy/systemd/embed-pipeline-admin.sh status
#
# UNIT=embed-pipeline-code@4001 before it: with the settings of that unit, such as its queue.
set -eu
set -a
. /etc/embed-pipeline/settings.env
if [ -n "${UNIT:-}" ]; then
    . "/etc/embed-pipeline/$UNIT.env"
fi
EMBED_PIPELINE_HOME=/var/lib/embed-pipeline
DAGSTER_HOME=/var/lib/embed-pipeline/dagster
NEO4J_PASSWORD_FILE=/etc/embed-pipeline/secrets/neo4j_password
OPENAI_API_KEY_FILE=/etc/embed-pipeline/secrets/openai_api_key
DAGSTER_PG_PASSWORD_FILE=/etc/embed-pipeline/secrets/postgres_password
set +a
cd /var/lib/embed-pipeline
exec /opt/embed-pipeline/deploy/with-secrets.sh /opt/embed-pipeline/.venv/bin/embed-pipeline "$@"
