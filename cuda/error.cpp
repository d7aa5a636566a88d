// SPDX-License-Identifier: Apache-2.0
#include "cuda/error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

namespace attest::cuda {

void write_message(const std::string& text, char* message, std::size_t bytes) {
  if (message == nullptr || bytes == 0) return;
  const std::size_t length = std::min(text.size(), bytes - 1);
  std::memcpy(message, text.data(), length);
  message[length] = '\0';
}

int32_t run_checked(const attest_call* call, const attest_kernel& kernel, void (*body)(const attest_call&)) {
  try {
    std::array<char, 256> reason = {};
    if (kernel.supports(call->problem, reason.data(), reason.size()) != 1) {
      write_message(reason.data(), call->message, call->message_bytes);
      return ATTEST_REFUSED;
    }
    body(*call);
    return ATTEST_OK;
  } catch (const std::exception& error) {
    write_message(error.what(), call->message, call->message_bytes);
    return ATTEST_FAILED;
  }
}

}  // namespace attest::cuda
