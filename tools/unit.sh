#!/bin/sh
# The unit tests. Each file of the lab's has a process of its own: moto's state and patches are global.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
# A lab that the shell points at is none of their business.
for name in $(env | sed -n 's/^\(AWS_[A-Z_]*\)=.*/\1/p') KUBECONFIG GPUSHARE_LAB_DIR; do
  unset "$name"
done
bad=0
for file in tests/unit/lab/test_*.py; do
  echo "== $file"
  python -m pytest -q "$file" || bad=1
done
python -m pytest -q tests/unit --ignore tests/unit/lab || bad=1
exit $bad
