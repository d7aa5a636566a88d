#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build and builds the sample consumer from the installed tree alone, then runs its gates.
# usage: install_test.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/prefix" > "$folder/log" || { cat "$folder/log"; exit 1; }
# No copy of the sources is near, so that nothing but the installed tree can be found.
cp -r "$source/tests/consumer" "$folder/consumer"
cp "$source"/tools/sample_kernel/*.c "$folder/consumer/"
cmake -S "$folder/consumer" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" \
  -DSOURCES='sample_kernel.c;their_attention.c' > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
cmake --build "$folder/build" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
ctest --test-dir "$folder/build" --output-on-failure
for file in index.html summary.md junit.xml cases.jsonl; do
  [[ -s $folder/build/mine.attest/$file ]] || { echo "no $file"; exit 1; }
done
grep -q '"state":"fail"' "$folder/build/broken.gate/cases.jsonl" || { echo "the broken kernel did not fail by its values"; exit 1; }
grep -q '"state":"pass"' "$folder/build/mine.attest/cases.jsonl"
