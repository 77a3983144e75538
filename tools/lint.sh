#!/bin/sh
# Every static judge, each clean without exceptions.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
# The lab's inventory parses for a loopback address only; a syntax check calls nobody there.
export AWS_ENDPOINT_URL=http://127.0.0.1:9
say() { printf 'lint: %s\n' "$*"; }
say ruff
ruff check .
ruff format --check .
say yamllint
yamllint --strict .
say ansible-lint
ansible-lint --offline -q
say antsibull-docs
antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs self --check-extra-docs-refs .
antsibull-changelog lint
