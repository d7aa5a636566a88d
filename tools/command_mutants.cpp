// SPDX-License-Identifier: Apache-2.0
// `attest mutants PATH`: which planted defects are found, by which check, after how many cases and seconds; by Attest's
// own rule or by those of other suites, on Attest's random cases or on a grid of ordinary ones.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/oracle/exact.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/check.h"
#include "reference/verify/checks/check_unit.h"
#include "reference/verify/generate.h"
#include "reference/verify/run_kernel.h"
#include "tools/builtin.h"
#include "tools/child_process.h"
#include "tools/commands.h"
#include "tools/mutant.h"
#include "tools/other_rules.h"
#include "tools/output_file.h"

namespace attest::tools {
namespace {

constexpr double kWorkPerRandomCase = 2e7;  // of the checks beside the values, as in `attest verify`
constexpr double kGrace = 120;  // seconds beyond its budget before a mutant counts as hanging

struct Options {
  std::vector<std::string> paths;
  std::vector<std::string> names;
  double seconds = 60;
  std::int64_t cases = 0;
  std::uint64_t seed = 1;
  int jobs = 2;
  Rule rule = Rule::bound;
  bool friendly = false;
  std::string json, markdown;
};

/// What ran against one mutant. Cases on which the rule rejects the unmutated kernel too say nothing and are counted.
struct Result {
  bool killed = false;
  std::string by;         // check and tensors
  std::string case_text;  // that found it
  std::int64_t cases = 0, rejected_sound = 0;
  double seconds = 0;
};

nlohmann::json to_json(const Result& r) {
  return {{"killed", r.killed},   {"by", r.by},           {"case", r.case_text},
          {"cases", r.cases},     {"seconds", r.seconds}, {"rejected_sound", r.rejected_sound}};
}

Result from_json(const nlohmann::json& j) {
  return {j["killed"], j["by"], j["case"], j["cases"], j["rejected_sound"], j["seconds"]};
}

/// Ordinary cases as attention projects test with: normal inputs, lengths of FlashAttention's tests up to 256, widths 64
/// and 128, 16-bit types, causal or not, with and without grouped heads.
std::vector<Problem> friendly_grid() {
  std::vector<Problem> grid;
  for (const char* type : {"f16", "bf16"})
    for (const char* lengths : {"q=113 k=203", "q=128 k=217", "q=108 k=256", "q=256 k=256"})
      for (const char* causal : {"", " causal=bottom-right"})
        for (const char* shape : {" heads=2 dim=64", " heads=2/1 dim=128"})
          grid.push_back(parse_case(fmt::format("dtype={} {}{}{}", type, lengths, causal, shape)));
  return grid;
}

class Hunt {
 public:
  Hunt(const Mutant& mutant, const Options& options)
      : mutant_(mutant), options_(options), memory_(make_host_memory()),
        grid_(options.friendly ? friendly_grid() : std::vector<Problem>{}) {
    for (const Kernel& kernel : builtin_kernels()) {
      if (kernel.name() == mutant.original) sound_ = kernel;
      if (kernel.name() == "standard") plain_ = kernel;
    }
    if (!sound_) throw InvalidRequest("mutants", mutant.original, "a mutant of a built-in kernel");
  }

  Result run() {
    const auto start = std::chrono::steady_clock::now();
    const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    for (std::uint64_t index = 0; !result_.killed && spent() < options_.seconds; ++index) {
      if (options_.friendly ? index >= grid_.size() : options_.cases > 0 && result_.cases >= options_.cases) break;
      try_case(options_.friendly ? grid_[index] : random_case({}, options_.seed, index));
    }
    result_.seconds = spent();
    return result_;
  }

 private:
  void try_case(const Problem& problem) {
    if (!mutant_.kernel.why_unsupported(problem).empty()) return;
    result_.cases += 1;
    if (options_.rule == Rule::bound)
      by_bound(problem);
    else
      by_other_rule(problem);
    if (result_.killed) result_.case_text = print_case(problem);
  }

  void by_bound(const Problem& problem) {
    static const CheckOptions like_verify{.units = select_checks("all"), .work_per_case = kWorkPerRandomCase};
    const Verdict verdict = check(mutant_.kernel, problem, *memory_, like_verify);
    if (verdict.state != State::fail && verdict.state != State::error) return;
    result_.killed = true;
    for (const TensorVerdict& tensor : verdict.tensors)
      if (tensor.wrong > 0) result_.by += (result_.by.empty() ? "value: " : " ") + tensor.tensor;
    std::set<std::string> checks;
    for (const Finding& finding : verdict.findings) checks.insert(finding.check);
    for (const std::string& name : checks) result_.by += (result_.by.empty() ? "" : "; ") + name;
    if (result_.by.empty()) result_.by = verdict.reason;
  }

  void by_other_rule(const Problem& problem) {
    const Inputs inputs = make_inputs(problem);
    const Exact want = exact_attention(problem, inputs);
    const auto outputs = [&](const Kernel& kernel) { return run_kernel(kernel, problem, inputs, want, *memory_); };
    const KernelRun plain = outputs(*plain_), sound = outputs(*sound_);
    std::string why;
    if (!plain.judgeable() || !accepts(options_.rule, problem, want, sound.outputs, plain.outputs, why)) {
      result_.rejected_sound += 1;
      return;
    }
    const KernelRun run = outputs(mutant_.kernel);
    result_.killed = !run.judgeable() || !accepts(options_.rule, problem, want, run.outputs, plain.outputs, result_.by);
    if (!run.judgeable()) result_.by = run.error.empty() ? run.refusal : run.error;
  }

  const Mutant& mutant_;
  const Options& options_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<Problem> grid_;
  std::optional<Kernel> sound_, plain_;
  Result result_;
};

constexpr const char* kRuleNames[] = {"bound", "allclose", "fa2x", "nmse"};

std::vector<Mutant> chosen_mutants(const Options& options) {
  std::vector<Mutant> mutants = load_mutants(options.paths);
  if (options.names.empty()) return mutants;
  std::vector<Mutant> chosen;
  for (const std::string& name : options.names) {
    const auto found = std::find_if(mutants.begin(), mutants.end(), [&](const Mutant& x) { return x.kernel.name() == name; });
    if (found == mutants.end()) throw InvalidRequest("only", fmt::format("'{}'", name), "the name of a mutant");
    chosen.push_back(*found);
  }
  return chosen;
}

std::string markdown(const std::vector<Mutant>& mutants, const std::vector<Result>& results) {
  std::string text = "| mutant | defect | origin | found by | cases | the case |\n|---|---|---|---|---:|---|\n";
  for (std::size_t n = 0; n < mutants.size(); ++n)
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", mutants[n].kernel.name(), mutants[n].title, mutants[n].origin,
                        results[n].killed ? results[n].by : "**not found**", results[n].cases,
                        results[n].killed ? "`" + results[n].case_text + "`" : "");
  return text;
}

std::string summary(const Options& options, const std::vector<Result>& results) {
  std::vector<double> seconds, cases;
  std::int64_t rejected = 0;
  for (const Result& r : results) {
    rejected += r.rejected_sound;
    if (r.killed) seconds.push_back(r.seconds), cases.push_back(static_cast<double>(r.cases));
  }
  const auto median = [](std::vector<double>& x) {
    std::sort(x.begin(), x.end());
    return x.empty() ? 0.0 : x[x.size() / 2];
  };
  std::string text = fmt::format("{} of {} mutants found by {} on {}; median {:.2f} s, {:.0f} cases\n", seconds.size(),
                                 results.size(), kRuleNames[static_cast<int>(options.rule)],
                                 options.friendly ? "the friendly grid" : "random cases", median(seconds), median(cases));
  if (rejected > 0) text += fmt::format("the rule rejected the unmutated kernel {} times; these cases do not count\n", rejected);
  return text;
}

int run_mutants(const Options& options) {
  const std::vector<Mutant> mutants = chosen_mutants(options);
  std::ofstream json = open_output("json", options.json), table = open_output("markdown", options.markdown);
  std::vector<Result> results(mutants.size());
  const int threads = std::max(1, omp_get_num_procs() / options.jobs);
  const auto work = [&](std::size_t n) {
    omp_set_num_threads(threads);
    return to_json(Hunt(mutants[n], options).run()).dump();
  };
  run_children(mutants.size(), options.jobs, options.seconds + kGrace, work, [&](std::size_t n, const ChildAnswer& answer) {
    Result& r = results[n];
    if (answer.death.empty())
      r = from_json(nlohmann::json::parse(answer.text));
    else
      r.killed = true, r.by = "crash: " + answer.death;
    fmt::print("{:<36} {:<4} {:<9} {:<10} {:>5} cases {:>7.2f} s  {}\n", mutants[n].kernel.name(), mutants[n].kind,
               mutants[n].direction, r.killed ? "found" : "NOT FOUND", r.cases, r.seconds, r.by);
    std::fflush(stdout);
  });
  fmt::print("{}", summary(options, results));
  if (table.is_open()) table << markdown(mutants, results);
  if (json.is_open()) {
    nlohmann::json all = nlohmann::json::array();
    for (std::size_t n = 0; n < mutants.size(); ++n) {
      nlohmann::json one = to_json(results[n]);
      one.update({{"mutant", mutants[n].kernel.name()}, {"defect", mutants[n].title}, {"origin", mutants[n].origin},
                  {"kind", mutants[n].kind}, {"direction", mutants[n].direction}, {"smallest", mutants[n].smallest},
                  {"expected", mutants[n].expected}});
      all.push_back(one);
    }
    json << all.dump(1) << '\n';
  }
  for (auto* file : {&json, &table})
    if (file->is_open() && !file->flush()) throw std::runtime_error("a report could not be written to its end");
  return std::all_of(results.begin(), results.end(), [](const Result& r) { return r.killed; }) ? 0 : 1;
}

}  // namespace

Run add_mutants(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("mutants", "Measure detection: which planted defects are found, by what, how soon");
  command->add_option("plugins", options->paths, "folders of mutant plugins, or plugins")->required();
  command->add_option("--only", options->names, "this mutant alone; repeatable")->allow_extra_args(false);
  command->add_option("--time", options->seconds, "seconds for each mutant (default 60)")->check(CLI::PositiveNumber);
  command->add_option("--cases", options->cases, "at most so many cases for each (default: no limit)")->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "seed of the random cases (default 1)");
  command->add_option("--jobs", options->jobs, "mutants at a time (default 2)")->check(CLI::Range(1, 64));
  command->add_option("--rule", options->rule, "bound (default), allclose, fa2x or nmse: what judges the outputs")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Rule>{
          {"bound", Rule::bound}, {"allclose", Rule::allclose}, {"fa2x", Rule::fa2x}, {"nmse", Rule::nmse}}));
  command->add_flag("--friendly", options->friendly, "a grid of ordinary cases instead of random ones");
  command->add_option("--json", options->json, "write all results to this file");
  command->add_option("--markdown", options->markdown, "write a table to this file");
  command->footer("Examples:\n"
                  "  attest mutants build/cpu/tests/mutants/plugins\n"
                  "  attest mutants build/cpu/tests/mutants/plugins --only lse-base-2 --seed 5\n"
                  "  attest mutants build/cpu/tests/mutants/plugins --rule allclose --friendly\n"
                  "\nExit codes: 0 all found; 1 some not; 2 usage or environment.");
  return [options] { return run_mutants(*options); };
}

}  // namespace attest::tools
