// SPDX-License-Identifier: Apache-2.0
// `attest golden`: makes packs, holds kernels or other backends' outputs against them, shows and lints them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "golden/case_file.h"
#include "golden/case_tensors.h"
#include "golden/lint.h"
#include "golden/make.h"
#include "golden/onnx.h"
#include "golden/pack.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/case_facts.h"
#include "reference/verify/report.h"
#include "tools/builtin.h"
#include "tools/commands.h"
#include "tools/golden_check.h"

#ifdef ATTEST_WITH_SLOW_ORACLE
#include "tests/support/slow_oracle.h"
#endif

namespace attest::tools {
namespace {

namespace fs = std::filesystem;
using golden::GoldenCase;

struct MakeOptions {
  std::string corpus;
  std::string output;
  std::string name;
  bool onnx = false;
  int threads = 0;
};

struct CheckPackOptions {
  std::vector<std::string> packs;
  std::vector<std::string> kernels;
  std::string outputs;
  std::string json;
  bool forward = false;
};

#ifdef ATTEST_WITH_SLOW_ORACLE
golden::TruthSource slow_truth() {
  return {[](const Problem& p, const Inputs& in) { return slow::correctly_rounded(p, in); },
          [](const Problem& p, const Inputs& in, auto b, auto h, auto i, auto j) {
            return slow::visible(p, in.mask, in.block_mask, b, h, i, j);
          },
          slow::kept};
}
#else
golden::TruthSource slow_truth() {
  throw InvalidRequest("golden make", "a build without the slow oracle",
                       "a build with ATTEST_TESTS=ON, which has MPFR");
}
#endif

int make(const MakeOptions& options) {
  const golden::TruthSource truth = slow_truth();
  const std::vector<golden::GoldenRequest> requests = golden::read_golden_corpus(options.corpus);
  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<golden::NewCase> cases;
  std::uint64_t bytes = 0;
  for (GoldenCase& made : golden::make_golden_cases(requests, truth, threads)) {
    const std::string name = golden::case_name(made);
    std::vector<golden::NewFile> files = {{name + ".safetensors", golden::write_case(made)}};
    if (options.onnx) {
      for (golden::NewFile& file : golden::onnx_files(made, name)) files.push_back(std::move(file));
    }
    for (const golden::NewFile& file : files) bytes += file.bytes.size();
    cases.push_back({std::move(made), std::move(files)});
  }
  const std::string name = options.name.empty() ? fs::path(options.corpus).stem().string() : options.name;
  golden::write_pack(options.output, name, cases);
  fmt::print("{}: {} cases, {:.1f} KiB\n", options.output, cases.size(), static_cast<double>(bytes) / 1024);
  return 0;
}

/// One line of where a case comes from, and what is off.
void print_bad(const golden::Pack& pack, const golden::PackEntry& entry, const Verdict& verdict) {
  std::string text = describe(verdict);
  const std::size_t repeat = text.find("  repeat");
  const std::size_t next = text.find('\n', repeat) + 1;
  text.replace(repeat, next - repeat,
               fmt::format("  case     {}\n  file     {}/{}\n  aimed at {}\n", entry.text, pack.folder, entry.file.path,
                           fmt::join(entry.flags, " ")));
  fmt::print("{}\n", text);
}

class PackCheck {
 public:
  explicit PackCheck(const CheckPackOptions& options) : options_(options) {
    for (const std::string& folder : options.packs) packs_.push_back(golden::read_pack(folder));
    if (options.json.empty()) return;
    json_.open(options.json, std::ios::trunc);
    if (!json_) throw InvalidRequest("json", fmt::format("'{}'", options.json), "a file that can be written");
  }

  int run() {
    if (options_.outputs.empty()) {
      for (const Kernel& kernel : select_kernels(options_.kernels, builtin_kernels())) {
        const std::unique_ptr<DeviceMemory> memory = memory_for(kernel);
        each_case(
            [&](const golden::PackEntry&, const GoldenCase& golden) { return check_golden(kernel, golden, *memory); });
      }
    } else {
      if (!fs::is_directory(options_.outputs)) {
        throw InvalidRequest("outputs", fmt::format("'{}'", options_.outputs), "a folder");
      }
      each_case([&](const golden::PackEntry& entry, const GoldenCase& golden) {
        expected_.insert(entry.file.path);
        return check_golden_outputs((fs::path(options_.outputs) / entry.file.path).string(), golden);
      });
    }
    const bool extra = report_extra_files();
    fmt::print("{}", summary_.table());
    for (const auto& [flag, count] : bad_by_flag_) fmt::print("{:>5} bad cases aimed at {}\n", count, flag);
    if (summary_.ran() == 0) fmt::print("nothing ran: no case was supported\n");
    return extra ? 1 : summary_.exit_code();
  }

 private:
  template <typename Check>
  void each_case(Check check_case) {
    for (const golden::Pack& pack : packs_) {
      for (const golden::PackEntry& entry : pack.entries) {
        GoldenCase golden = golden::load_case(pack, entry);
        if (options_.forward) keep_forward(golden);
        const Verdict verdict = check_case(entry, golden);
        summary_.add(verdict);
        if (json_.is_open()) json_ << json_line(verdict) << '\n';
        if (verdict.state == State::pass || verdict.state == State::unsupported) continue;
        print_bad(pack, entry, verdict);
        for (const std::string& flag : entry.flags) bad_by_flag_[flag] += 1;
      }
    }
  }

  bool report_extra_files() const {
    bool any = false;
    if (options_.outputs.empty()) return any;
    for (const auto& item : fs::directory_iterator(options_.outputs)) {
      const std::string name = item.path().filename().string();
      if (expected_.contains(name)) continue;
      fmt::print("extra file {}: no case of the packs has that name\n", item.path().string());
      any = true;
    }
    return any;
  }

  const CheckPackOptions& options_;
  std::vector<golden::Pack> packs_;
  std::ofstream json_;
  Summary summary_;
  std::map<std::string, int> bad_by_flag_;
  std::set<std::string> expected_;
};

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) {
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  }
  return most;
}

int show(const std::string& path) {
  GoldenCase golden = golden::load_case(path);
  fmt::print("{}", explain_case(golden.problem));
  for (const auto& [key, value] : golden::case_metadata(golden)) fmt::print("{:<18} {}\n", key, value);
  fmt::print("\n{:<14} {:<8} {}\n", "tensor", "type", "shape");
  for (const golden::CaseTensor& tensor : golden::case_tensors(golden.problem)) {
    fmt::print("{:<14} {:<8} [{}]\n", tensor.name, name_of(tensor.type), fmt::join(tensor.shape, ", "));
  }
  fmt::print("\n{:<6} {:>12} {:>12} {:>12}\n", "output", "max |value|", "max bound", "unbounded");
  for (const std::string& name : golden::output_names(golden.problem)) {
    const std::vector<double>& bounds = golden::output_values(golden.bounds, name);
    const auto unbounded = std::count_if(bounds.begin(), bounds.end(), [](double x) { return std::isinf(x); });
    fmt::print("{:<6} {:>12.4g} {:>12.4g} {:>12}\n", name, largest(golden::output_values(golden.exact, name)),
               largest(bounds), unbounded);
  }
  return 0;
}

int lint(const std::vector<std::string>& folders) {
  std::size_t count = 0;
  for (const std::string& folder : folders) {
    const std::vector<std::string> breaches = golden::lint_pack(folder);
    for (const std::string& breach : breaches) fmt::print("{}\n", breach);
    if (breaches.empty()) fmt::print("{}: clean\n", folder);
    count += breaches.size();
  }
  return count == 0 ? 0 : 1;
}

Run add_make(CLI::App& golden) {
  auto options = std::make_shared<MakeOptions>();
  CLI::App* command = golden.add_subcommand("make", "Make a pack from a corpus; the same bytes every time, everywhere");
  command->add_option("corpus", options->corpus, "a text file of cases, with '# flags:' lines")->required();
  command->add_option("-o,--output", options->output, "the pack's folder; must not exist yet, or be empty")->required();
  command->add_option("--name", options->name, "the pack's name (default: that of the corpus)");
  command->add_flag("--onnx", options->onnx, "also write each case as an ONNX backend test");
  command->add_option("--threads", options->threads, "threads (default: all processors)")->check(CLI::PositiveNumber);
  command->footer("Example:\n  attest golden make golden/corpora/smoke.txt -o /tmp/smoke");
  return [options] { return make(*options); };
}

Run add_check(CLI::App& golden) {
  auto options = std::make_shared<CheckPackOptions>();
  CLI::App* command =
      golden.add_subcommand("check", "Hold kernels, or outputs in files, against packs and their bounds");
  command->add_option("packs", options->packs, "folders of packs")->required();
  command->add_option("--kernel", options->kernels, "a built-in kernel, or PATH.so[:NAME]; repeatable; default: all")
      ->allow_extra_args(false);
  command
      ->add_option("--outputs", options->outputs, "a folder with one safetensors file a case, named as the case's own")
      ->excludes("--kernel");
  command->add_flag("--forward", options->forward, "o and lse alone");
  command->add_option("--json", options->json, "write one JSON object a case to this file");
  command->footer(
      "Examples:\n"
      "  attest golden check golden/packs/smoke --kernel flash\n"
      "  attest golden check golden/packs/core golden/packs/edge --outputs my_outputs --forward\n"
      "\nExit codes: 0 all pass; 1 any fail, untrusted, missing, misshapen or extra, or nothing ran; 2 usage");
  return [options] { return PackCheck(*options).run(); };
}

}  // namespace

Run add_golden(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("golden", "Packs of cases with exact answers and bounds, as files for any backend");
  command->require_subcommand(1);
  const Run run_make = add_make(*command);
  const Run run_check = add_check(*command);
  auto file = std::make_shared<std::string>();
  CLI::App* show_command = command->add_subcommand("show", "Say what a case file holds");
  show_command->add_option("file", *file, "a .safetensors file of a pack")->required();
  show_command->footer("Example:\n  attest golden show golden/packs/smoke/NAME.safetensors");
  auto folders = std::make_shared<std::vector<std::string>>();
  CLI::App* lint_command =
      command->add_subcommand("lint", "Check packs: schema, hashes, flags, duplicates, stray files, masks");
  lint_command->add_option("packs", *folders, "folders of packs")->required();
  lint_command->footer("Example:\n  attest golden lint golden/packs/*");
  command->footer(
      "Examples:\n"
      "  attest golden check golden/packs/smoke --kernel flash\n"
      "  attest golden make golden/corpora/smoke.txt -o /tmp/smoke\n"
      "Files and use: docs/golden.md");
  return [=] {
    if (command->got_subcommand("make")) return run_make();
    if (command->got_subcommand("check")) return run_check();
    if (command->got_subcommand(show_command)) return show(*file);
    return lint(*folders);
  };
}

}  // namespace attest::tools
