// SPDX-License-Identifier: Apache-2.0
// The one exception for a request that cannot be carried out: it names the field, the value given and
// what is allowed. Nothing has been written when it is thrown.
#pragma once

#include <stdexcept>
#include <string>

namespace attest {

class InvalidRequest : public std::invalid_argument {
 public:
  /// what() reads "FIELD: got VALUE; ALLOWED", for example "heads: got 6/4; query heads must be a
  /// multiple of key/value heads".
  InvalidRequest(std::string field, std::string value, std::string allowed)
      : std::invalid_argument(field + ": got " + value + "; " + allowed),
        field_(std::move(field)), value_(std::move(value)), allowed_(std::move(allowed)) {}

  const std::string& field() const { return field_; }
  const std::string& value() const { return value_; }
  const std::string& allowed() const { return allowed_; }

 private:
  std::string field_;
  std::string value_;
  std::string allowed_;
};

}  // namespace attest
