#!/bin/sh
# All tests, in two lanes: the static judges and unit tests beside everything that needs the lab.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
mkdir -p build/test
started=$(date +%s)
failed=''
stage() { # NAME COMMAND...: runs it, its output to build/test/NAME.log, says how it went
  name=$1
  shift
  at=$(date +%s)
  if "$@" >"build/test/$name.log" 2>&1; then verdict=ok; else verdict=FAILED; fi
  printf 'test: %-12s %-6s %4ds\n' "$name" "$verdict" $(($(date +%s) - at))
  if [ "$verdict" = ok ]; then return 0; fi
  tail -n 120 "build/test/$name.log"
  return 1
}
static_lane() {
  bad=0
  stage lint tools/lint.sh || bad=1
  stage sanity tools/sanity.sh || bad=1
  return $bad
}
lab_lane() {
  was_up=no
  if [ -f .lab/env ]; then was_up=yes; fi
  if ! python -m lab up; then return 1; fi
  . ./.lab/env
  bad=0
  stage integration python -m pytest -v tests/integration || bad=1
  stage molecule molecule test --all || bad=1
  if [ $was_up = no ]; then python -m lab down || bad=1; fi
  return $bad
}
static_lane >build/test/static.out 2>&1 &
static=$!
lab_lane || failed="$failed lab"
wait $static || failed="$failed static"
cat build/test/static.out
python -m pytest -q tests/unit || failed="$failed unit"
grep -hE '^(=+ .*(passed|failed).*=+|[0-9]+ passed)' build/test/integration.log
printf 'test: %ds in all\n' $(($(date +%s) - started))
if [ -n "$failed" ]; then
  printf 'test: FAILED:%s (logs in build/test/)\n' "$failed"
  exit 1
fi
echo 'test: all green'
