#!/bin/sh
# Write the pins that CI and the Makefile install, for every platform and Python that pyproject.toml admits, and the
# lowest versions that it allows (oldest.txt, for `make test-oldest`).
# No index address is written: the pins say what, the machine's own configuration says from where.
set -eu
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet "uv>=0.5"
compile() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links "$@"
}
compile pyproject.toml requirements/build.in --output-file requirements/run.txt
compile pyproject.toml requirements/build.in --all-extras --constraint requirements/run.txt \
    --output-file requirements/dev.txt
compile pyproject.toml requirements/build.in --extra test --resolution lowest-direct --output-file requirements/oldest.txt
