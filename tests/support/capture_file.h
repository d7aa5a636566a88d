// SPDX-License-Identifier: Apache-2.0
// A capture of a call with right or faulty outputs, to be spoiled by a test and written to a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reference/diagnose/diagnosis.h"
#include "reference/problem/safetensors.h"
#include "tests/support/faulty_attention.h"

namespace attest::testing_support {

/// The tensors of a call, to be changed before they are written.
class CaptureFile {
 public:
  explicit CaptureFile(const std::string& text, const Fault& fault = {});

  std::vector<double> values(const std::string& name) const;
  void add(const std::string& name, Dtype type, std::vector<std::int64_t> shape, const std::vector<double>& data);
  void add_integers(const std::string& name, const std::vector<std::int64_t>& data);
  /// Sets one element of a tensor.
  void set(const std::string& name, std::size_t at, double value);

  void write(const std::string& path) const;
  /// What a diagnosis of the written file says.
  diagnose::Diagnosis diagnose() const;

  struct Tensor {
    StoredType stored;
    Dtype type;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor> tensors;
  Metadata metadata;

 private:
  std::vector<std::int64_t> shape_of(TensorId id) const;
  void place(TensorId id, const Values& values);
  void place_lse(const std::string& name, const std::vector<double>& values);

  Problem problem_;
};

/// True where a line of the stage, with its fix, holds the words.
bool says(const diagnose::Diagnosis& diagnosis, const std::string& stage, const std::string& words);

#define EXPECT_SAYS(diagnosis, stage, words) EXPECT_TRUE(testing_support::says(diagnosis, stage, words)) << diagnose::print(diagnosis)

}  // namespace attest::testing_support
