#!/bin/sh
# Find a Python that fits and let it make .venv. `PYTHON=/path/to/python` chooses one.
set -u
fits='import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'

for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    if "$python" -c "$fits" >/dev/null 2>&1; then
        exec "$python" scripts/setup.py
    fi
done

cat >&2 <<MESSAGE
embed-pipeline needs Python 3.11, 3.12, 3.13 or 3.14.
Found: ${PYTHON:-python3} = $("${PYTHON:-python3}" --version 2>&1 | head -n 1)
Install one of them (package manager, python.org or pyenv), then run the command again,
or name it: make setup PYTHON=/path/to/python3.12
MESSAGE
exit 2
