// SPDX-License-Identifier: Apache-2.0
#include "tools/mutant.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "reference/problem/invalid_request.h"

namespace attest::tools {
namespace {

std::string header_of(const std::string& library) {
  // The kernel holds the library; this only looks the symbol up.
  void* handle = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto header = handle == nullptr
                          ? nullptr
                          : reinterpret_cast<const char* (*)()>(dlsym(handle, "attest_mutant_header"));
  const std::string text = header == nullptr ? "" : header();
  if (handle != nullptr) dlclose(handle);
  if (text.empty())
    throw InvalidRequest("mutants", fmt::format("'{}'", library), "a plugin built from tests/mutants");
  return text;
}

std::string field(const std::string& header, const std::string& library, const std::string& name) {
  const std::string start = "\n" + name + ": ";
  const std::size_t at = header.find(start);
  if (at == std::string::npos)
    throw InvalidRequest("mutants", fmt::format("'{}'", library), fmt::format("a header with '{}:'", name));
  const std::size_t from = at + start.size();
  return header.substr(from, header.find('\n', from) - from);
}

}  // namespace

Mutant load_mutant(const std::string& library) {
  std::vector<Kernel> kernels = load_kernels(library);
  const std::string header = header_of(library);
  const auto get = [&](const char* name) { return field(header, library, name); };
  return {kernels.front(), header.substr(0, header.find('\n')), get("Origin"), get("Kind"), get("Direction"),
          get("Kernel"), get("Case"), get("Proof"), get("Check")};
}

std::vector<Mutant> load_mutants(const std::vector<std::string>& paths) {
  std::vector<std::string> libraries;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      libraries.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".so") libraries.push_back(entry.path().string());
  }
  std::sort(libraries.begin(), libraries.end());
  std::vector<Mutant> mutants;
  for (const std::string& library : libraries) mutants.push_back(load_mutant(library));
  if (mutants.empty())
    throw InvalidRequest("mutants", fmt::format("{} paths without plugins", paths.size()),
                         "folders with plugins, such as build/cpu/tests/mutants/plugins, or plugins");
  return mutants;
}

}  // namespace attest::tools
