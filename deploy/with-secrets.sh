#!/bin/sh
# Reads secrets from files, then becomes the program that is named behind it:
#
#     NEO4J_PASSWORD_FILE=/run/secrets/neo4j_password with-secrets.sh embed-pipeline status
#
# Containers and systemd hand out secrets as files; the settings and Dagster read variables. What is
# exported here is in no command line, no unit and no compose file.
#
# What the program writes is closed to other users: logs and events name entities and quote errors.
set -eu
umask 077

for name in NEO4J_PASSWORD OPENAI_API_KEY DAGSTER_PG_PASSWORD CELERY_BROKER_URL; do
    eval "file=\${${name}_FILE:-} given=\${${name}:-}"
    [ -n "$file" ] || continue
    if [ -n "$given" ]; then
        echo "with-secrets: $name and ${name}_FILE are both set; set one of them" >&2
        exit 2
    fi
    if ! value=$(cat -- "$file"); then
        echo "with-secrets: ${name}_FILE cannot be read" >&2
        exit 2
    fi
    export "$name=$value"
    unset "${name}_FILE"
done

exec "$@"
