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
# not peers and arviz: gigabytes that only an optional bench and drawings ask for
compile pyproject.toml requirements/build.in --extra test --extra lint --extra docs --extra cluster \
    --constraint requirements/run.txt --output-file requirements/dev.txt
# Playwright with what it needs beyond those: fifty megabytes that only the tests in a browser ask for
compile pyproject.toml requirements/build.in --extra test --extra lint --extra docs --extra cluster --extra browser \
    --constraint requirements/dev.txt --output-file requirements/browser.txt
grep -v -x -F -f requirements/dev.txt requirements/browser.txt >requirements/browser.part
mv requirements/browser.part requirements/browser.txt
compile pyproject.toml requirements/build.in --extra test --extra cluster --resolution lowest-direct --output-file requirements/oldest.txt
