// SPDX-License-Identifier: Apache-2.0
// What the pack `core` covers, computed from the texts of its cases: every feature, every pair of features, and every
// trigger that docs/golden-triggers.md names.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "golden/pack.h"
#include "reference/problem/case_text.h"

namespace attest::golden {
namespace {

const std::string kSource = ATTEST_SOURCE_DIR "/";

bool all_of(const Problem& p, bool (*holds)(std::int64_t q, std::int64_t k)) {
  for (std::size_t b = 0; b < p.seq_q.size(); ++b) {
    if (!holds(p.seq_q[b], p.seq_k[b])) return false;
  }
  return true;
}

bool has_empty_sequence(const Problem& p) {
  return !all_of(p, [](std::int64_t q, std::int64_t k) { return q > 0 && k > 0; });
}

/// Something that a case has or has not. Of the features of one group (its first word) a case has at most one.
struct Feature {
  const char* group;
  const char* name;
  std::function<bool(const Problem&)> has;
};

const std::vector<Feature>& features() {
  static const std::vector<Feature> all = {
      {"type", "f16", [](const Problem& p) { return p.dtype == Dtype::f16; }},
      {"type", "bf16", [](const Problem& p) { return p.dtype == Dtype::bf16; }},
      {"type", "f8e4m3", [](const Problem& p) { return p.dtype == Dtype::f8e4m3; }},
      {"type", "f8e5m2", [](const Problem& p) { return p.dtype == Dtype::f8e5m2; }},
      {"layout", "packed", [](const Problem& p) { return p.layout == Layout::thd; }},
      {"layout", "padded on the left", [](const Problem& p) { return p.pad == PadSide::left; }},
      {"lengths", "more queries",
       [](const Problem& p) {
         return !has_empty_sequence(p) && all_of(p, [](std::int64_t q, std::int64_t k) { return q > k; });
       }},
      {"lengths", "one query",
       [](const Problem& p) { return all_of(p, [](std::int64_t q, std::int64_t k) { return q == 1 && k > 1; }); }},
      {"lengths", "an empty sequence", has_empty_sequence},
      {"heads", "grouped heads", [](const Problem& p) { return p.heads_q != p.heads_kv; }},
      {"dim", "odd D", [](const Problem& p) { return p.dim % 2 != 0; }},
      {"width", "Dv", [](const Problem& p) { return p.width_v() != p.dim; }},
      {"scale", "scale", [](const Problem& p) { return p.scale.has_value(); }},
      {"softcap", "softcap", [](const Problem& p) { return p.softcap > 0; }},
      {"bias", "bias", [](const Problem& p) { return p.bias && p.bias->hide == 0; }},
      {"bias", "bias of -inf", [](const Problem& p) { return p.bias && p.bias->hide > 0; }},
      {"alibi", "alibi", [](const Problem& p) { return p.alibi; }},
      {"causal", "top-left", [](const Problem& p) { return p.causal == Causal::top_left; }},
      {"causal", "bottom-right", [](const Problem& p) { return p.causal == Causal::bottom_right; }},
      {"window", "window", [](const Problem& p) { return p.window && p.window->left >= 0 && p.window->right >= 0; }},
      {"window", "one-sided window",
       [](const Problem& p) { return p.window && (p.window->left < 0) != (p.window->right < 0); }},
      {"mask", "mask", [](const Problem& p) { return p.mask.has_value(); }},
      {"block", "block mask", [](const Problem& p) { return p.block.has_value(); }},
      {"dropout", "dropout", [](const Problem& p) { return p.dropout.has_value(); }},
      {"dlse", "gradient of lse", [](const Problem& p) { return p.d_lse; }},
      {"page", "pages", [](const Problem& p) { return p.page_size > 0; }},
  };
  return all;
}

bool together(const Feature& one, const Feature& other) {
  const std::set<std::string> groups = {one.group, other.group};
  // Paged keys have no gradients, so none of lse either.
  return groups.size() == 2 && groups != std::set<std::string>{"dlse", "page"};
}

/// The pairs (a feature alone: the pair with itself) that no case has with no other feature beside them.
std::vector<std::string> missing_pairs(const std::vector<Problem>& cases) {
  std::set<std::set<std::string>> seen;
  for (const Problem& problem : cases) {
    std::set<std::string> names;
    for (const Feature& feature : features()) {
      if (feature.has(problem)) names.insert(feature.name);
    }
    seen.insert(names);
  }
  std::vector<std::string> missing;
  for (std::size_t m = 0; m < features().size(); ++m) {
    for (std::size_t n = m; n < features().size(); ++n) {
      const Feature &one = features()[m], &other = features()[n];
      if (m != n && !together(one, other)) continue;
      if (!seen.contains({one.name, other.name})) missing.push_back(std::string(one.name) + " with " + other.name);
    }
  }
  return missing;
}

std::vector<Problem> core_cases() {
  std::vector<Problem> cases;
  for (const PackEntry& entry : read_pack(kSource + "golden/packs/core").entries)
    cases.push_back(parse_case(entry.text));
  return cases;
}

TEST(GoldenCore, HasEveryFeatureAloneAndEveryPairAlone) {
  for (const std::string& missing : missing_pairs(core_cases())) {
    ADD_FAILURE() << missing << ": add a case to golden/corpora/core.txt that has these and no other feature";
  }
}

TEST(GoldenCore, MissesAPairOnceItsCaseIsGone) {
  std::vector<Problem> cases = core_cases();
  std::erase_if(cases, [](const Problem& p) { return p.alibi && p.causal == Causal::top_left; });
  EXPECT_EQ(missing_pairs(cases), std::vector<std::string>{"alibi with top-left"});
  std::erase_if(cases, [](const Problem& p) { return p.dtype == Dtype::f8e5m2; });
  EXPECT_GT(missing_pairs(cases).size(), 20u);
}

/// A row of the table of docs/golden-triggers.md.
struct Trigger {
  std::vector<std::string> cases;
  std::string note;
};

std::map<std::string, Trigger> read_triggers() {
  std::ifstream file(kSource + "docs/golden-triggers.md");
  std::map<std::string, Trigger> triggers;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| K")) continue;
    std::istringstream cells(line);
    std::string cell, texts, name;
    std::getline(cells, cell, '|');  // before the first bar
    std::getline(cells, name, '|');
    std::getline(cells, cell, '|');
    std::getline(cells, texts, '|');
    Trigger trigger;
    std::getline(cells, trigger.note, '|');
    for (std::size_t open = texts.find('`'); open != std::string::npos;) {
      const std::size_t close = texts.find('`', open + 1);
      trigger.cases.push_back(texts.substr(open + 1, close - open - 1));
      open = texts.find('`', close + 1);
    }
    triggers[name.substr(1, name.find_last_not_of(' '))] = trigger;
  }
  return triggers;
}

/// What is wrong with the table, given the cases that there are.
std::vector<std::string> wrong_triggers(const std::map<std::string, Trigger>& triggers, const Pack& core) {
  std::set<std::string> texts;
  for (const PackEntry& entry : core.entries) texts.insert(entry.text + (entry.set.empty() ? "" : " # set"));
  std::vector<std::string> wrong;
  for (int kind = 1; kind <= 30; ++kind) {
    for (int number = 1; number <= 3 && kind != 29; ++number) {  // the catalogue has no K29
      const std::string name = (kind < 10 ? "K0" : "K") + std::to_string(kind) + " (" + std::to_string(number) + ")";
      if (!triggers.contains(name)) {
        wrong.push_back(name + ": no row");
        continue;
      }
      const Trigger& trigger = triggers.at(name);
      if (trigger.cases.empty() && trigger.note.find_first_not_of(' ') == std::string::npos)
        wrong.push_back(name + ": neither a case nor a reason");
      for (const std::string& text : trigger.cases) {
        const std::size_t mark = text.find(" # set");
        const std::string suffix = mark == std::string::npos ? "" : text.substr(mark);
        if (!texts.contains(print_case(parse_case(text.substr(0, mark))) + suffix))
          wrong.push_back(name + ": no " + text);
      }
    }
  }
  return wrong;
}

TEST(GoldenCore, HasEveryPublishedTriggerThatAFileCanHold) {
  const std::map<std::string, Trigger> triggers = read_triggers();
  for (const std::string& wrong : wrong_triggers(triggers, read_pack(kSource + "golden/packs/core"))) {
    ADD_FAILURE() << "docs/golden-triggers.md: " << wrong;
  }
  const auto with_cases =
      std::count_if(triggers.begin(), triggers.end(), [](const auto& row) { return !row.second.cases.empty(); });
  EXPECT_EQ(triggers.size(), 87u);
  EXPECT_EQ(with_cases, 60);
}

TEST(GoldenCore, MissesATriggerOnceItsCaseIsGone) {
  Pack core = read_pack(kSource + "golden/packs/core");
  std::erase_if(core.entries,
                [](const PackEntry& entry) { return entry.text == "q=67 k=67 dim=4 causal=bottom-right"; });
  std::map<std::string, Trigger> triggers = read_triggers();
  EXPECT_EQ(wrong_triggers(triggers, core),
            std::vector<std::string>{"K06 (2): no q=67 k=67 dim=4 causal=bottom-right"});
  triggers.erase("K02 (1)");
  EXPECT_EQ(wrong_triggers(triggers, core).front(), "K02 (1): no row");
}

}  // namespace
}  // namespace attest::golden
