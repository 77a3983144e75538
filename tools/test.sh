#!/bin/sh
# All tests, in three lanes, which keep two cores busy for 87 % of the time: much of it is waiting.
# Roles and integration have a lab each, because the integration tests look for what is left over in theirs.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
# Modules that one ansible-playbook packed serve the next.
ANSIBLE_CALLBACK_PLUGINS=$PWD/tools/callback
ANSIBLE_CALLBACKS_ENABLED=module_cache
export ANSIBLE_CALLBACK_PLUGINS ANSIBLE_CALLBACKS_ENABLED
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
rest() {
  bad=0
  for name in unit sanity lint; do
    stage $name "tools/$name.sh" || bad=1
  done
  return $bad
}
roles() {
  bad=0
  GPUSHARE_LAB_DIR=$PWD/build/lab-of-molecule
  export GPUSHARE_LAB_DIR
  if python -m lab up; then
    . "$GPUSHARE_LAB_DIR/env"
    stage molecule molecule test --all || bad=1
    python -m lab down || bad=1
  else
    bad=1
  fi
  return $bad
}
was_up=no
if [ -f .lab/env ]; then was_up=yes; fi
python -m lab up || exit 1
. ./.lab/env
failed=''
roles &
roles=$!
rest &
rest=$!
stage integration python -m pytest -v --durations=12 tests/integration || failed="$failed integration"
if [ $was_up = no ]; then python -m lab down || failed="$failed lab-stop"; fi
wait $rest || failed="$failed unit-sanity-or-lint"
wait $roles || failed="$failed molecule"
grep -hE '[0-9]+ passed' build/test/integration.log build/test/unit.log
printf 'test: %ds in all\n' $(($(date +%s) - started))
if [ -n "$failed" ]; then
  printf 'test: FAILED:%s (logs in build/test/)\n' "$failed"
  exit 1
fi
echo 'test: all green'
