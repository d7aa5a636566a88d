// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/kernel.h"

#include <dlfcn.h>

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/invalid_request.h"
#include "reference/verify/abi_problem.h"

namespace attest {
namespace {

constexpr const char* kEntry = "attest_kernels";

using EntryFunction = std::size_t (*)(std::uint32_t, const attest_kernel* const**);

void check_table(const attest_kernel* table, const std::string& origin) {
  const auto refuse = [&](const std::string& value, const std::string& allowed) {
    throw InvalidRequest("kernel", fmt::format("{} ({})", value, origin), allowed);
  };
  if (table == nullptr) refuse("a null entry", "a pointer to an attest_kernel");
  if (table->abi_version != ATTEST_ABI_VERSION) {
    refuse(fmt::format("ABI version {}", table->abi_version), fmt::format("version {}", ATTEST_ABI_VERSION));
  }
  if (table->struct_size < sizeof(attest_kernel)) {
    refuse(fmt::format("struct_size {}", table->struct_size), fmt::format("sizeof(attest_kernel), {}", sizeof(attest_kernel)));
  }
  if (table->name == nullptr || table->name[0] == '\0') refuse("no name", "a name of lower case letters, digits and dashes");
  if (table->description == nullptr) refuse(fmt::format("{} without description", table->name), "one line of text");
  if (table->supports == nullptr || table->numerics == nullptr) {
    refuse(fmt::format("{} without supports or numerics", table->name), "both functions");
  }
  const bool claims_forward = (table->directions & ATTEST_FORWARD) != 0;
  const bool claims_backward = (table->directions & ATTEST_BACKWARD) != 0;
  if (!claims_forward && !claims_backward) refuse(fmt::format("{} with no direction", table->name), "forward, backward or both");
  if ((claims_forward && table->forward == nullptr) || (claims_backward && table->backward == nullptr)) {
    refuse(fmt::format("{} without the function of a direction it claims", table->name), "a function for each direction");
  }
  if (table->device != ATTEST_CPU && table->device != ATTEST_CUDA) {
    refuse(fmt::format("{} on device {}", table->name, table->device), "ATTEST_CPU or ATTEST_CUDA");
  }
}

}  // namespace

Kernel::Kernel(const attest_kernel* table, std::string origin, std::shared_ptr<void> library)
    : table_(table), origin_(std::move(origin)), library_(std::move(library)) {
  check_table(table_, origin_);
}

bool Kernel::has(Direction direction) const {
  const std::int32_t wanted = abi_directions(direction);
  return (table_->directions & wanted) == wanted;
}

std::string Kernel::why_unsupported(const Problem& problem) const {
  if (!has(problem.direction)) {
    return table_->directions == ATTEST_FORWARD ? "has no backward" : "has no forward";
  }
  const AbiProblem abi(problem);
  char reason[256] = "";
  if (table_->supports(abi.get(), reason, sizeof(reason)) != 0) return "";
  reason[sizeof(reason) - 1] = '\0';
  return reason[0] == '\0' ? "declined without a reason" : reason;
}

attest_numerics Kernel::numerics(const Problem& problem) const {
  const AbiProblem abi(problem);
  attest_numerics numerics{};
  numerics.struct_size = sizeof(numerics);
  table_->numerics(abi.get(), &numerics);
  return numerics;
}

std::vector<Kernel> load_kernels(const std::string& request) {
  std::string path = request;
  std::string wanted;
  // A name may follow the last colon, unless the whole is a file.
  if (const std::size_t colon = request.rfind(':'); colon != std::string::npos && !std::filesystem::exists(request)) {
    path = request.substr(0, colon);
    wanted = request.substr(colon + 1);
  }
  if (!std::filesystem::exists(path)) {
    throw InvalidRequest("kernel", fmt::format("'{}'", path), "a built-in kernel or an existing library, PATH.so[:NAME]");
  }
  // dlopen searches the system's folders unless the path has a slash.
  const std::string absolute = std::filesystem::absolute(path).string();
  std::shared_ptr<void> library(dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* handle) {
    if (handle != nullptr) dlclose(handle);
  });
  if (library == nullptr) {
    throw InvalidRequest("kernel", fmt::format("'{}'", path), fmt::format("a loadable shared library ({})", dlerror()));
  }
  const auto entry = reinterpret_cast<EntryFunction>(dlsym(library.get(), kEntry));
  if (entry == nullptr) {
    throw InvalidRequest("kernel", fmt::format("'{}'", path),
                         fmt::format("a library that exports {}, see kernel_abi.h", kEntry));
  }
  const attest_kernel* const* tables = nullptr;
  const std::size_t count = entry(ATTEST_ABI_VERSION, &tables);
  if (count == 0 || tables == nullptr) {
    throw InvalidRequest("kernel", fmt::format("'{}'", path),
                         fmt::format("a library with kernels for ABI version {}", ATTEST_ABI_VERSION));
  }
  std::vector<Kernel> kernels;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    Kernel kernel(tables[i], path, library);
    names.push_back(kernel.name());
    if (wanted.empty() || wanted == kernel.name()) kernels.push_back(kernel);
  }
  if (kernels.empty()) {
    throw InvalidRequest("kernel", fmt::format("'{}'", wanted), fmt::format("one of {}: {}", path, fmt::join(names, " ")));
  }
  return kernels;
}

std::vector<Kernel> select_kernels(const std::vector<std::string>& requests, std::span<const Kernel> builtin) {
  if (requests.empty()) return {builtin.begin(), builtin.end()};
  std::vector<Kernel> selected;
  for (const std::string& request : requests) {
    bool found = false;
    for (const Kernel& kernel : builtin) {
      if (kernel.name() != request) continue;
      selected.push_back(kernel);
      found = true;
    }
    if (found) continue;
    if (request.find('/') == std::string::npos && !std::filesystem::exists(request) &&
        request.find(".so") == std::string::npos) {
      std::vector<std::string> names;
      for (const Kernel& kernel : builtin) names.push_back(kernel.name());
      throw InvalidRequest("kernel", fmt::format("'{}'", request),
                           fmt::format("one of {}, or PATH.so[:NAME]", fmt::join(names, " ")));
    }
    for (const Kernel& kernel : load_kernels(request)) selected.push_back(kernel);
  }
  return selected;
}

}  // namespace attest
