#!/bin/sh
# All tests, in two lanes, one for each of two cores; both use one lab, in two regions of its AWS.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
mkdir -p build/test
started=$(date +%s)
stage() { # NAME COMMAND...: runs it, its output to build/test/NAME.log, says how it went
  name=$1
  shift
  at=$(date +%s)
  if "$@" >"build/test/$name.log" 2>&1; then verdict=ok; else verdict=FAILED; fi
  printf 'test: %-12s %-6s %4ds\n' "$name" "$verdict" $(($(date +%s) - at))
  if [ "$verdict" = ok ]; then return 0; fi
  tail -n 150 "build/test/$name.log"
  return 1
}
roles_and_judges() {
  bad=0
  # Another region than the integration tests': these look for anything left over in theirs.
  stage molecule env AWS_REGION=us-west-2 AWS_DEFAULT_REGION=us-west-2 molecule test --all || bad=1
  stage lint tools/lint.sh || bad=1
  stage sanity tools/sanity.sh || bad=1
  return $bad
}
was_up=no
if [ -f .lab/env ]; then was_up=yes; fi
python -m lab up || exit 1
. ./.lab/env
failed=''
roles_and_judges &
beside=$!
stage integration python -m pytest -v --durations=12 tests/integration || failed="$failed integration"
stage unit python -m pytest -q tests/unit || failed="$failed unit"
wait $beside || failed="$failed molecule-or-judges"
if [ $was_up = no ]; then python -m lab down || failed="$failed lab-stop"; fi
tail -n 1 build/test/integration.log build/test/unit.log
printf 'test: %ds in all\n' $(($(date +%s) - started))
if [ -n "$failed" ]; then
  printf 'test: FAILED:%s (logs in build/test/)\n' "$failed"
  exit 1
fi
echo 'test: all green'
