#!/bin/sh
# The unit tests.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
# A lab that the shell points at is none of their business.
for name in $(env | sed -n 's/^\(AWS_[A-Z_]*\)=.*/\1/p') KUBECONFIG GPUSHARE_LAB_DIR; do
  unset "$name"
done
bad=0
python tools/unit_lab.py || bad=1
python -m pytest -q tests/unit --ignore tests/unit/lab || bad=1
exit $bad
