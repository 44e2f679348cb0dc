#!/bin/sh
# Runs a command with the settings and secrets of the units, called by root and then as their user:
#
#     sudo /opt/embed-pipeline/deploy/systemd/embed-pipeline-admin.sh status
#
# UNIT=embed-pipeline-code@4001 before it: with the settings of that unit, such as its queue.
# Files that it writes (report --out) have to be where that user may write: /var/lib/embed-pipeline.
set -eu
project=/opt/embed-pipeline
cd /var/lib/embed-pipeline
# Read, not sourced: a settings file is no script. Root reads the secrets, then drops its rights.
exec "$project/.venv/bin/python" -I "$project/deploy/systemd/with_settings.py" \
    /etc/embed-pipeline/settings.env ${UNIT:+"/etc/embed-pipeline/$UNIT.env"} -- \
    env \
    EMBED_PIPELINE_HOME=/var/lib/embed-pipeline \
    DAGSTER_HOME=/var/lib/embed-pipeline/dagster \
    NEO4J_PASSWORD_FILE=/etc/embed-pipeline/secrets/neo4j_password \
    OPENAI_API_KEY_FILE=/etc/embed-pipeline/secrets/openai_api_key \
    DAGSTER_PG_PASSWORD_FILE=/etc/embed-pipeline/secrets/postgres_password \
    "$project/deploy/with-secrets.sh" \
    setpriv --reuid=embed-pipeline --regid=embed-pipeline --init-groups --no-new-privs \
    "$project/.venv/bin/embed-pipeline" "$@"
