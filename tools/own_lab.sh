#!/bin/sh
# Runs a script on a lab of its own, which ends with it: tools/own_lab.sh NAME SCRIPT
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
GPUSHARE_LAB_DIR=$PWD/build/lab-of-$1
export PATH GPUSHARE_LAB_DIR
python -m lab up || exit 1
. "$GPUSHARE_LAB_DIR/env"
python "$2"
verdict=$?
python -m lab down || verdict=1
exit $verdict
