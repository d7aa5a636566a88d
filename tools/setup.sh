# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/test and tools/verify: choose a preset, install what is missing, configure and build.
# Sets nothing up by itself; a caller has set `root`, the checkout, and may set `install` to 0.

# package | how to see that it is there (cmd: a program, inc: a header, py: a module of Python) | why
attest_packages() {
  cat << 'LIST'
g++|cmd:c++|compiler
cmake|cmd:cmake|build system
ninja-build|cmd:ninja|build system
libeigen3-dev|inc:eigen3/Eigen/Core|matrices of the oracle
libfmt-dev|inc:fmt/core.h|texts
nlohmann-json3-dev|inc:nlohmann/json.hpp|reports and captured tensors
libcli11-dev|inc:CLI/CLI.hpp|command line
libgtest-dev|inc:gtest/gtest.h|tests
librapidcheck-dev|inc:rapidcheck.h|property tests
libmpfr-dev|inc:mpfr.h|the slow oracle
libbenchmark-dev|inc:benchmark/benchmark.h|benchmarks
patch|cmd:patch|planting the mutants of the tests
libssl-dev|inc:openssl/evp.h|SHA-256 of the golden packs
python3-numpy|py:numpy|the Python example of the golden packs
LIST
  if [[ $1 == fuzz ]]; then
    cat << 'LIST'
clang|cmd:clang++|compiler of the fuzzers
libclang-rt-14-dev|lib:clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a|libFuzzer and sanitizers
libomp-dev|lib:llvm-*/lib/libomp.so|OpenMP for clang
LIST
  fi
}

# Browsers of Debian, which are named after their packages; the smaller one first (300 MB on the disk).
attest_browsers='chromium-headless-shell chromium'

attest_present() {
  local name=${1#*:} place
  case $1 in
    cmd:*) command -v "$name" > /dev/null ;;
    inc:*)
      for place in /usr/include /usr/local/include ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//[:;]//include }/include}; do
        [[ -e $place/$name ]] && return 0
      done
      compgen -G "/usr/include/*-linux-gnu/$name" > /dev/null
      ;;
    py:*) [[ -x /usr/bin/python3 ]] && /usr/bin/python3 -c "import $name" 2> /dev/null ;;
    lib:*) compgen -G "/usr/lib/$name" > /dev/null || compgen -G "/usr/lib/llvm-*/lib/$name" > /dev/null ;;
  esac
}

attest_say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
attest_stop() { attest_say "$@"; exit 2; }

# Installs what preset $1 needs, and only that; says which packages and why.
attest_install() {
  local package probe why missing=() sudo=()
  while IFS='|' read -r package probe why; do
    if ! attest_present "$probe"; then
      missing+=("$package")
      attest_say "missing: $package ($why)"
    fi
  done < <(attest_packages "$1")
  if ((${#missing[@]})); then
    ((install)) || attest_stop "not installing anything (--no-install); needed: ${missing[*]}"
    command -v apt-get > /dev/null \
      || attest_stop "only Debian and Ubuntu are installed on by this script; please install what is missing (Debian's package names): ${missing[*]}"
    if ((EUID != 0)); then
      command -v sudo > /dev/null || attest_stop "neither root nor sudo; please install: ${missing[*]}"
      sudo=(sudo)
    fi
    attest_say "installing with apt-get: ${missing[*]}"
    "${sudo[@]}" apt-get update -qq < /dev/null || attest_stop "apt-get update failed"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}" < /dev/null > /dev/null || attest_stop "apt-get install failed for: ${missing[*]}"
  fi
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
  if ((${version%.*} < 3 || (${version%.*} == 3 && ${version#*.} < 25))); then
    attest_stop "CMake $version is too old; 3.25 or newer is needed (Debian 12, Ubuntu 24.04, or a newer CMake on PATH)"
  fi
}

# Installs a browser for the test of the HTML report, where the archive has one; never an error. Ubuntu's `chromium` is
# but a pointer to a snap, which a container cannot install, so only Debian is asked.
attest_install_browser() {
  local package sudo=()
  for package in $attest_browsers chromium-browser google-chrome; do
    command -v "$package" > /dev/null && return
  done
  ((install)) && command -v apt-get > /dev/null && grep -qs '^ID=debian$' /etc/os-release || return 0
  if ((EUID != 0)); then
    command -v sudo > /dev/null || return 0
    sudo=(sudo)
  fi
  for package in $attest_browsers; do
    apt-cache show "$package" > /dev/null 2>&1 || continue
    attest_say "installing with apt-get: $package (browser, for the test of the HTML report)"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "$package" < /dev/null > /dev/null && return
  done
  attest_say "no browser could be installed; the test of the HTML report in a browser will skip"
}

# cuda where both a GPU and nvcc are there, else cpu: CUDA takes long to build and cannot run without a GPU.
attest_default_preset() {
  if { command -v nvcc || [[ -x /usr/local/cuda/bin/nvcc ]]; } > /dev/null 2>&1 \
    && nvidia-smi -L 2> /dev/null | grep -q '^GPU'; then
    echo cuda
  else
    echo cpu
  fi
}

# attest_build PRESET JOBS [TARGET...]
attest_build() {
  local preset=$1 jobs=$2
  shift 2
  (cd "$root" && cmake --preset "$preset" < /dev/null) || attest_stop "configure failed (preset $preset)"
  (cd "$root" && cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} < /dev/null) || {
    attest_say "build failed (preset $preset)"
    exit 1
  }
}

# attest_summary RESULTS STATUS: the closing line and the exit code from ctest's JUnit file and ctest's own exit code.
# Skipped are GoogleTest's skips (ctest knows them by SKIP_REGULAR_EXPRESSION or SKIP_RETURN_CODE) and disabled tests;
# a test that could not be started is "notrun" in the file too, and failed.
attest_summary() {
  local total passed skipped failed
  total=$(grep -c '<testcase ' "$1" || true)
  passed=$(grep -c '<testcase .*status="run"' "$1" || true)
  skipped=$(grep -cE '<testcase .*status="disabled"|<skipped message="SKIP_' "$1" || true)
  failed=$((total - passed - skipped))
  if ((total == 0)); then
    attest_say "no test ran"
    return 1
  fi
  if ((failed == 0 && $2 != 0)); then
    attest_say "ctest itself failed (exit code $2)"
    failed=1
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}
