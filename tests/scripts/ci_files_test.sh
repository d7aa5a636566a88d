#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CI files of docs/ci are YAML of the right shape, and every `attest` command line in them is one that parses.
# usage: ci_files_test.sh SOURCE ATTEST
set -euo pipefail
source=$1 attest=$2
python3 -c 'import yaml' 2> /dev/null || { echo "no PyYAML here"; exit 77; }
python3 - "$source/docs/ci" << 'SCRIPT' | while IFS= read -r options; do
import sys, yaml
github = yaml.safe_load(open(sys.argv[1] + "/github.yml"))
gitlab = yaml.safe_load(open(sys.argv[1] + "/gitlab.yml"))
assert set(github["jobs"]) == {"cpu", "gpu"}, github["jobs"].keys()
lines = []
for job in github["jobs"].values():
    assert job["runs-on"] and all("uses" in step or "run" in step for step in job["steps"])
    assert any(step.get("if") == "always()" for step in job["steps"]), "the report is kept when the gate fails"
    lines += [step["run"] for step in job["steps"] if "run" in step]
assert gitlab[".attest"]["artifacts"]["reports"]["junit"] == "report/junit.xml"
assert all(gitlab[job]["extends"] == ".attest" for job in ("attest-cpu", "attest-gpu"))
lines += gitlab[".attest"]["script"]
gates = [line for line in lines if line.startswith("attest gate ")]
assert len(gates) == 3, lines
for line in gates:
    print(line.removeprefix("attest ").replace('"$ATTEST_BUDGET"', "5"))
SCRIPT
  # The options parse; the library and corpus they name are not here, which is all that is objected to.
  said=$($attest $options 2>&1) && { echo "ran: $options"; exit 1; }
  grep -q 'tests/attest.txt' <<< "$said" || { echo "$options: $said"; exit 1; }
done
