#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attest_summary on results as ctest wrote them: one test each that passed, failed, was skipped by GTEST_SKIP, was
# disabled, crashed, had no program, was skipped by its exit code, ran out of time.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../tools/setup.sh"
bad=0

expect() {  # NAME WANT_LINE WANT_CODE RESULTS STATUS
  local got code=0
  got=$(attest_summary "$4" "$5" 2> /dev/null) || code=$?
  if [[ $got != "$2" || $code != "$3" ]]; then
    echo "$1: want '$2' and exit code $3, got '$got' and $code"
    bad=1
  fi
}

none=$(mktemp)
passing=$(mktemp)
trap 'rm -f "$none" "$passing"' EXIT
printf '<testsuite tests="0">\n</testsuite>\n' > "$none"
grep -A1 -E 'A\.(Pass|Skip)"' "$here/results.xml" > "$passing"

expect 'every way to end' '1 passed, 4 failed, 3 skipped' 1 "$here/results.xml" 8
expect 'all well' '1 passed, 0 failed, 1 skipped' 0 "$passing" 0
expect 'ctest failed, no test did' '1 passed, 1 failed, 1 skipped' 1 "$passing" 8
expect 'nothing ran' '' 1 "$none" 0
exit $bad
