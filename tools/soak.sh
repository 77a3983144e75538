#!/bin/sh
# The soak on a lab of its own that keeps an audit log: GPUSHARE_SOAK_MINUTES, GPUSHARE_SEED.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
GPUSHARE_LAB_DIR=$PWD/build/lab-of-soak
GPUSHARE_LAB_AUDIT=1
export PATH GPUSHARE_LAB_DIR GPUSHARE_LAB_AUDIT
python -m lab up || exit 1
. "$GPUSHARE_LAB_DIR/env"
python tests/benchmark/soak.py
verdict=$?
python -m lab down || verdict=1
exit $verdict
