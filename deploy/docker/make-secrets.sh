#!/bin/sh
# Makes the secrets of compose.yaml beside it, where they do not exist. The key of the provider stays
# empty (mock vectors) until you write it into secrets/openai_api_key.
#
# The folder is closed to others; the files in it are readable, because each container reads them as
# a user of its own.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

[ -e secrets/neo4j_password ] || random > secrets/neo4j_password
[ -e secrets/postgres_password ] || random > secrets/postgres_password
[ -e secrets/openai_api_key ] || : > secrets/openai_api_key
# The form in which Neo4j's own image wants it.
printf 'neo4j/%s' "$(cat secrets/neo4j_password)" > secrets/neo4j_auth
chmod 444 secrets/*
