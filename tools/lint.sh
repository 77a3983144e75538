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
antsibull-docs lint-collection-docs .
# References into other collections are looked up in the docs of every installed one: minutes.
if [ -n "${GPUSHARE_ALL:-}" ]; then
  antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs all --check-extra-docs-refs .
fi
antsibull-changelog lint
