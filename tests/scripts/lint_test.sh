#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/lint on a small tree: clean first, then with one breach of each rule, each of which must be named.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v git > /dev/null || { echo "git is missing"; exit 77; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git -C "$tree" init -q
spdx='// SPDX-License-Identifier: Apache-2.0'
bad=0

add() { mkdir -p "$tree/$(dirname "$1")"; printf '%s\n' "${@:2}" > "$tree/$1"; }

expect() {  # EXIT_CODE TEXT FILE LINE...
  local code=0 got
  add "$3" "${@:4}"
  got=$("$here/../../tools/lint" --no-format --root "$tree") || code=$?
  if [[ $code != "$1" || $got != *"$2"* ]]; then
    printf 'want exit code %s and "%s", got %s and:\n%s\n' "$1" "$2" "$code" "$got"
    bad=1
  fi
  rm "$tree/$3"
}

add reference/problem/problem.h "$spdx" 'Values q;  // [tokens, Hq, D]'
expect 0 'clean' cuda/right.cu "$spdx" '#include "reference/problem/problem.h"'
expect 1 'cuda/a.cu:2:#include "reference/oracle/exact.h": kernels may include' cuda/a.cu "$spdx" '#include "reference/oracle/exact.h"'
expect 1 'reference/models/a.cpp:2:' reference/models/a.cpp "$spdx" '#include "reference/verify/judge.h"'
expect 1 'problem depends on nothing' reference/problem/a.cpp "$spdx" '#include "reference/models/b.h"'
expect 1 'oracle depends on problem only' reference/oracle/a.cpp "$spdx" '#include "cuda/b.h"'
expect 1 'libraries include no tests' golden/a.cpp "$spdx" '#include "tests/support/b.h"'
expect 1 'from the root of the repository' tools/a.cpp "$spdx" '#include "../b.h"'
expect 1 'reference/problem/utils.h: no file or folder is called' reference/problem/utils.h "$spdx"
expect 1 'tools/a.cpp:1: the first or second line is the SPDX line' tools/a.cpp 'int main() {}'
expect 1 'cuda/a.cu:401: over 400 lines' cuda/a.cu "$spdx" "$(yes '//' | head -400)"
expect 1 'with its shape' reference/oracle/a.h "$spdx" 'Values k;  // keys'
exit $bad
