// SPDX-License-Identifier: Apache-2.0
#include "tools/golden_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "golden/case_tensors.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/safetensors.h"
#include "reference/verify/conventions.h"

namespace attest::tools {
namespace {

using golden::CaseTensor;
using golden::GoldenCase;

/// A case whose exact values are the file's: case_tensors() says where each belongs.
GoldenCase read_outputs(const SafetensorsFile& file, const GoldenCase& wanted) {
  GoldenCase got;
  got.problem = wanted.problem;
  const std::vector<std::string> names = golden::output_names(wanted.problem);
  const auto is_output = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const CaseTensor& tensor : golden::case_tensors(wanted.problem)) {
    if (!is_output(tensor.name)) continue;
    const StoredTensor* found = file.find(tensor.name);
    const std::string needed =
        fmt::format("{} [{}] of F32, F16, BF16 or F64", tensor.name, fmt::join(tensor.shape, ", "));
    if (found == nullptr) throw InvalidRequest(file.name(), "no tensor " + tensor.name, needed);
    if (found->shape != tensor.shape || found->type > StoredType::bf16) {
      throw InvalidRequest(file.name(), fmt::format("tensor {} of {}", tensor.name, describe(*found)), needed);
    }
    tensor.set(got, values_of(*found, file.name()));
  }
  for (const StoredTensor& tensor : file.tensors()) {
    if (!is_output(tensor.name)) {
      throw InvalidRequest(file.name(), "tensor " + tensor.name, fmt::format("only {}", fmt::join(names, " ")));
    }
  }
  return got;
}

}  // namespace

void keep_forward(GoldenCase& golden) {
  golden.problem.direction = Direction::forward;
  golden.problem.d_lse = golden.problem.d_bias = false;
}

Verdict check_golden(const Kernel& kernel, const GoldenCase& golden, DeviceMemory& memory) {
  PreparedCase prepared;
  prepared.problem = golden.problem;
  prepared.unsupported = why_unjudgeable(kernel, golden.problem);
  if (prepared.unsupported.empty()) {
    prepared.inputs = golden.inputs;
    prepared.truth = {golden.exact, golden.bounds};
    apply_conventions(kernel.table().conventions, golden.problem, prepared.inputs, prepared.truth);
  }
  return check(kernel, prepared, memory);
}

Verdict check_golden_outputs(const std::string& path, const GoldenCase& golden) {
  Verdict verdict;
  verdict.kernel = verdict.request = std::filesystem::path(path).parent_path().string();
  verdict.problem = golden.problem;
  KernelRun run;
  try {
    if (!std::filesystem::exists(path))
      throw InvalidRequest(path, "no such file", "one file for each case of the pack");
    const GoldenCase got = read_outputs(SafetensorsFile::read(path), golden);
    run.outputs = {got.exact.o, got.exact.lse, got.exact.dq, got.exact.dk, got.exact.dv, got.exact.d_bias};
  } catch (const InvalidRequest& error) {
    run.error = error.what();
  }
  judge_run(golden.problem, {golden.exact, golden.bounds}, run, verdict);
  return verdict;
}

}  // namespace attest::tools
