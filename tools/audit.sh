#!/bin/sh
# prowler and checkov on a lab of its own, against the waivers of docs/security.md.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
GPUSHARE_LAB_DIR=$PWD/build/lab-of-audit
export PATH GPUSHARE_LAB_DIR
python -m lab up || exit 1
. "$GPUSHARE_LAB_DIR/env"
python tests/audit/audit.py
verdict=$?
python -m lab down || verdict=1
exit $verdict
