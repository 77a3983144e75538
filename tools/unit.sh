#!/bin/sh
# The unit tests. Each file of the lab's has a process of its own: moto's state and patches are global.
set -u
cd "$(dirname "$0")/.."
bad=0
for file in tests/unit/lab/test_*.py; do
  echo "== $file"
  .venv/bin/python -m pytest -q "$file" || bad=1
done
.venv/bin/python -m pytest -q tests/unit --ignore tests/unit/lab || bad=1
exit $bad
