#!/bin/sh
# Kills at GPUSHARE_CHAOS_POINTS points (60) on a lab of its own; GPUSHARE_SEED repeats a run.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
GPUSHARE_LAB_DIR=$PWD/build/lab-of-chaos
export PATH GPUSHARE_LAB_DIR
python -m lab up || exit 1
. "$GPUSHARE_LAB_DIR/env"
python tests/chaos/chaos.py
verdict=$?
python -m lab down || verdict=1
exit $verdict
