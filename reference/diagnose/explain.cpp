// SPDX-License-Identifier: Apache-2.0
#include "reference/diagnose/explain.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace attest::diagnose {
namespace {

constexpr std::int64_t kCandidateRows = 256;   // looked at once, by the contract
constexpr std::size_t kScreenedRows = 20;      // on which every hypothesis is tried
constexpr std::size_t kComparedRows = 96;      // on which the best are ranked
constexpr std::size_t kFewestRows = 8;         // of either, where rows are long
constexpr double kScreenWork = 1e7;            // multiply-adds over the rows that are screened
constexpr double kCompareWork = 5e7;           // and over those that are ranked
constexpr std::size_t kRanked = 16;
constexpr std::size_t kPaired = 4;             // changes that are tried with every other one
constexpr double kHeadWork = 4e6;              // multiply-adds over the heads compared for dk and dv
constexpr double kMostHeadWork = 6e8;          // of one head; above, a few keys of it are looked at
constexpr double kMostKeyWork = 2e9;           // of these keys; above, dk and dv are left out
constexpr std::int64_t kSampledKeys = 8;
constexpr std::int64_t kFewQueries = 16384;    // with which keys of two heads are looked at
constexpr std::int64_t kBiasRows = 24;
constexpr double kImproves = 0.9;              // a change worth pairing leaves at most this share of the misfit
// Readings whose misfits differ by less have given the same values but for the last bits of a constant.
constexpr double kSame = 1e-3;

double head_work(const Problem& p, std::int64_t b) {
  return static_cast<double>(p.seq_q[b]) * static_cast<double>(p.seq_k[b]) * static_cast<double>(p.group() * (p.dim + p.width_v()));
}

std::int64_t count_rows(const Problem& p) { return p.total_q() * p.heads_q; }

RowAt row_number(const Problem& p, std::int64_t n) {
  std::int64_t b = 0;
  while (n >= p.seq_q[b] * p.heads_q) n -= p.seq_q[b++] * p.heads_q;
  return {b, n / p.seq_q[b], n % p.seq_q[b]};
}

/// Rows spread evenly over all; few heads where keys are many, because each head's keys are held in memory.
std::vector<RowAt> spread_rows(const Problem& p, std::int64_t most) {
  const std::int64_t all = count_rows(p);
  std::vector<RowAt> rows;
  const std::int64_t count = std::min(all, most);
  for (std::int64_t n = 0; n < count; ++n) {
    // The first and the last row of all are among them.
    rows.push_back(row_number(p, count == 1 ? 0 : static_cast<std::int64_t>(std::llround(static_cast<double>(n) * static_cast<double>(all - 1) / static_cast<double>(count - 1)))));
  }
  constexpr std::int64_t kHeldElements = 8'000'000;
  const std::int64_t held = std::max<std::int64_t>(p.max_k() * (p.dim + p.width_v()), 1);
  const auto heads = static_cast<std::size_t>(std::max<std::int64_t>(2, kHeldElements / held));
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::vector<std::pair<std::int64_t, std::int64_t>> order;
  for (const RowAt& at : rows) {
    if (seen.insert({at.b, at.h}).second) order.emplace_back(at.b, at.h);
  }
  if (order.size() <= heads) return rows;
  std::set<std::pair<std::int64_t, std::int64_t>> kept;
  for (std::size_t n = 0; n < heads; ++n) kept.insert(order[n * (order.size() - 1) / (heads - 1)]);
  std::vector<RowAt> few;
  for (const auto& [b, h] : kept) {
    const std::int64_t each = std::max<std::int64_t>(1, most / 4 / static_cast<std::int64_t>(heads));
    for (std::int64_t n = 0; n < each; ++n) few.push_back({b, h, each == 1 ? p.seq_q[b] - 1 : n * (p.seq_q[b] - 1) / (each - 1)});
  }
  return few;
}

/// The worst under the contract and some spread evenly, each half of `count`.
std::vector<RowAt> choose(const std::vector<RowAt>& rows, const std::vector<double>& misfit, std::size_t count) {
  if (rows.size() <= count) return rows;
  std::vector<std::size_t> order(rows.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return misfit[a] > misfit[b]; });
  std::set<std::size_t> chosen;
  // Every second of the worst first, so that they are not all of one place.
  for (std::size_t n = 0; n < order.size() && chosen.size() < count / 2; n += 1 + order.size() / (4 * count)) chosen.insert(order[n]);
  for (std::size_t n = 0; chosen.size() < count && n < count; ++n) chosen.insert(n * (rows.size() - 1) / (count - 1));
  std::vector<RowAt> result;
  for (const std::size_t n : chosen) result.push_back(rows[n]);
  return result;
}

class Search {
 public:
  explicit Search(const Evidence& evidence) : evidence_(evidence), evaluator_(evidence), contract_(contract_reading(evidence.problem)) {}

  Explanation run() {
    result_.hypotheses = hypotheses_for(evidence_);
    choose_sample();
    if (result_.contract.tensors.empty()) return std::move(result_);
    if (!deviates()) return std::move(result_);
    std::vector<Candidate> singles;
    for (std::size_t n = 0; n < result_.hypotheses.size(); ++n) {
      for (const Scope scope : scopes_) singles.push_back({{n}, scope, {}});
    }
    screen(singles);
    std::vector<Candidate> best(singles.begin(), singles.begin() + static_cast<std::ptrdiff_t>(std::min(kRanked, singles.size())));
    rank(best);
    result_.contract_on_sample = contract_fit(result_.sample);
    result_.ranking = best;
    if (result_.causes().empty()) try_pairs(singles);
    return std::move(result_);
  }

 private:
  Fit fit(const Candidate& candidate, const Sample& sample) const {
    Reading changed;
    return fit_of(evaluator_, evidence_, passes_of(result_, candidate, contract_, changed), sample);
  }

  Fit contract_fit(const Sample& sample) const {
    return fit_of(evaluator_, evidence_, {&contract_, &contract_, false}, sample);
  }

  void choose_sample() {
    const Problem& p = evidence_.problem;
    result_.rows = count_rows(p);
    const std::vector<RowAt> rows = spread_rows(p, kCandidateRows);
    std::vector<double> misfit(rows.size(), 0);
    result_.rows_judged.resize(rows.size());
    const auto count = static_cast<std::int64_t>(rows.size());
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t n = 0; n < count; ++n) {
      result_.rows_judged[n] = {rows[n], contract_fit({.rows = {rows[n]}})};
      const Fit& one = result_.rows_judged[n].fit;
      misfit[n] = one.tensors.empty() ? 0 : one.misfit();
    }
    const double row = static_cast<double>(std::max<std::int64_t>(1, p.max_k() * (p.dim + p.width_v())));
    const auto affordable = [row](double work, std::size_t most) { return std::clamp(static_cast<std::size_t>(work / row), kFewestRows, most); };
    result_.sample.rows = choose(rows, misfit, affordable(kCompareWork, kComparedRows));
    screened_.rows = choose(rows, misfit, affordable(kScreenWork, kScreenedRows));
    if (evidence_.of(TensorId::dk).present() || evidence_.of(TensorId::dv).present()) choose_heads();
    if (evidence_.d_bias.present()) choose_bias_rows();
    // All candidate rows and heads decide which pass is wrong.
    Sample all{.rows = rows, .bias_rows = result_.sample.bias_rows};
    for (const auto& judged : result_.heads_judged) all.heads.push_back(judged.at);
    result_.contract = contract_fit(all);
  }

  void choose_heads() {
    const Problem& p = evidence_.problem;
    result_.heads = p.batch() * p.heads_kv;
    double work = 0;
    for (std::int64_t n = 0; n < result_.heads; ++n) {
      // From both ends inwards, so that two heads are the first and the last.
      const std::int64_t at = n % 2 == 0 ? n / 2 : result_.heads - 1 - n / 2;
      const HeadAt head{at / p.heads_kv, at % p.heads_kv};
      const double own = head_work(p, head.b);
      if (p.seq_k[head.b] == 0 || own > kMostHeadWork || (work > 0 && work + own > 4 * kHeadWork)) continue;
      work += own;
      result_.heads_judged.push_back({head, contract_fit({.heads = {head}})});
    }
    if (result_.heads_judged.empty()) {
      choose_keys();
      return;
    }
    std::vector<const Judged<HeadAt>*> order;
    for (const auto& judged : result_.heads_judged) order.push_back(&judged);
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->fit.misfit() > b->fit.misfit(); });
    work = 0;
    for (const auto* judged : order) {
      const double own = head_work(p, judged->at.b);
      if (work > 0 && work + own > kHeadWork) continue;
      work += own;
      result_.sample.heads.push_back(judged->at);
    }
  }

  /// Where every head costs too much: keys spread over the first and the last one.
  void choose_keys() {
    const Problem& p = evidence_.problem;
    if (!evidence_.lse.present() || !evidence_.of(TensorId::o).present()) return;
    for (const std::int64_t at : {std::int64_t{0}, result_.heads - 1}) {
      const std::int64_t b = at / p.heads_kv, n = p.seq_k[b], queries = p.seq_q[b] * p.group();
      const double work = static_cast<double>(queries * kSampledKeys * (p.dim + p.width_v()));
      if (n == 0 || work > kMostKeyWork || (!result_.heads_judged.empty() && (queries > kFewQueries || result_.heads == 1))) continue;
      HeadAt head{b, at % p.heads_kv};
      for (std::int64_t x = 0; x < std::min(n, kSampledKeys); ++x) head.keys.push_back(x * (n - 1) / std::max<std::int64_t>(1, std::min(n, kSampledKeys) - 1));
      result_.heads_judged.push_back({head, contract_fit({.heads = {head}})});
      result_.sample.heads.push_back(head);
    }
  }

  void choose_bias_rows() {
    const Problem& p = evidence_.problem;
    const Extents& shape = evidence_.d_bias.extents();
    result_.bias_rows = shape.batch * shape.heads * std::min(shape.rows, p.max_q());
    const double shared = static_cast<double>(shape.batch == 1 ? p.batch() : 1) * static_cast<double>(shape.heads == 1 ? p.heads_q : 1) * static_cast<double>(shape.rows == 1 ? p.max_q() : 1);
    const double own = shared * static_cast<double>(p.max_k() * (p.dim + p.width_v()));
    if (result_.bias_rows == 0 || own > kMostHeadWork) return;
    const std::int64_t count = std::min({kBiasRows, result_.bias_rows, std::max<std::int64_t>(2, static_cast<std::int64_t>(kHeadWork / std::max(own, 1.0)))});
    const std::int64_t rows = std::min(shape.rows, p.max_q());
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t at = count == 1 ? 0 : n * (result_.bias_rows - 1) / (count - 1);
      result_.sample.bias_rows.push_back({at / rows / shape.heads, at / rows % shape.heads, at % rows});
    }
  }

  bool wrong(const char* tensor) const {
    const TensorFit* fit = result_.contract.find(tensor);
    return fit != nullptr && fit->explained < fit->total;
  }

  /// Sets the scopes that can explain what is wrong; false where nothing is.
  bool deviates() {
    const bool forward = wrong("o") || wrong("lse");
    const bool rows = wrong("dq");
    const bool gradients = rows || wrong("dk") || wrong("dv") || wrong("dbias");
    columns_alone_ = !forward && !rows && gradients;
    if (forward) scopes_ = evidence_.has_gradients() ? std::vector{Scope::both, Scope::forward} : std::vector{Scope::forward};
    if (!forward && gradients) scopes_ = {Scope::backward, Scope::backward_own_softmax};
    if (!evidence_.has_forward() && gradients) scopes_.push_back(Scope::both);
    return forward || gradients;
  }

  void fit_all(std::vector<Candidate>& candidates, const Sample& sample) const {
    const auto count = static_cast<std::int64_t>(candidates.size());
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t n = 0; n < count; ++n) candidates[n].fit = fit(candidates[n], sample);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.fit.misfit() < b.fit.misfit(); });
  }

  /// Where o, lse and dq are right the cause shows in the sums over queries alone.
  Sample screening_sample() const {
    return columns_alone_ ? Sample{.heads = result_.sample.heads, .bias_rows = result_.sample.bias_rows} : screened_;
  }

  void screen(std::vector<Candidate>& candidates) const {
    fit_all(candidates, screening_sample());
  }

  void rank(std::vector<Candidate>& candidates) const {
    fit_all(candidates, result_.sample);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.fit.explained() > b.fit.explained(); });
  }

  void try_pairs(const std::vector<Candidate>& singles) {
    const double before = contract_fit(screening_sample()).misfit();
    std::vector<Candidate> pairs;
    std::vector<std::size_t> useful;
    for (const Candidate& single : singles) {
      if (useful.size() >= kPaired || !(single.fit.misfit() < kImproves * before)) break;
      if (std::find(useful.begin(), useful.end(), single.changes[0]) == useful.end()) useful.push_back(single.changes[0]);
    }
    // The second mistake may make nothing better before the first is mended, so its partners are all others.
    for (std::size_t a = 0; a < useful.size(); ++a) {
      for (std::size_t other = 0; other < result_.hypotheses.size(); ++other) {
        const auto earlier = std::find(useful.begin(), useful.begin() + static_cast<std::ptrdiff_t>(a) + 1, other);
        if (earlier != useful.begin() + static_cast<std::ptrdiff_t>(a) + 1) continue;
        const bool same_kind = result_.hypotheses[useful[a]].name == result_.hypotheses[other].name;
        if (same_kind || result_.hypotheses[other].detail.starts_with("tile")) continue;
        for (const Scope scope : scopes_) pairs.push_back({{std::min(useful[a], other), std::max(useful[a], other)}, scope, {}});
      }
    }
    if (pairs.empty()) return;
    result_.pairs_tried = true;
    screen(pairs);
    pairs.resize(std::min(kRanked, pairs.size()));
    rank(pairs);
    if (!pairs.front().fit.explained() && pairs.front().fit.misfit() >= 0.5 * result_.ranking.front().fit.misfit()) return;
    result_.ranking.insert(result_.ranking.begin(), pairs.begin(), pairs.end());
  }

  const Evidence& evidence_;
  Evaluator evaluator_;
  Reading contract_;
  Explanation result_;
  Sample screened_;
  std::vector<Scope> scopes_;
  bool columns_alone_ = false;
};

}  // namespace

std::string_view name_of(Scope scope) {
  switch (scope) {
    case Scope::both: return "forward and backward";
    case Scope::forward: return "forward";
    case Scope::backward: return "backward, with the LSE of the forward";
    case Scope::backward_own_softmax: return "backward";
  }
  return "";
}

Passes passes_of(const Explanation& explanation, const Candidate& candidate, const Reading& contract, Reading& changed) {
  changed = contract;
  for (const std::size_t n : candidate.changes) explanation.hypotheses[n].change(changed);
  const bool forward = candidate.scope == Scope::both || candidate.scope == Scope::forward;
  const bool backward = candidate.scope != Scope::forward;
  const bool consistent = candidate.scope == Scope::both || candidate.scope == Scope::backward_own_softmax;
  return {forward ? &changed : &contract, backward ? &changed : &contract, consistent};
}

std::vector<Candidate> Explanation::causes() const {
  std::vector<Candidate> best;
  for (const Candidate& candidate : ranking) {
    if (!candidate.fit.explained()) break;
    // A reading that is silent about what is wrong explains nothing.
    if (!candidate.fit.explains_more_than(contract_on_sample)) continue;
    if (!(candidate.fit.misfit() < 0.5 * contract.misfit())) break;
    const double first = best.empty() ? candidate.fit.misfit() : best.front().fit.misfit();
    if (candidate.fit.misfit() > first * (1 + kSame) + 1e-12) break;
    const bool named = std::any_of(best.begin(), best.end(), [&](const Candidate& c) { return c.changes == candidate.changes; });
    if (!named) best.push_back(candidate);
  }
  return best;
}

bool Explanation::nearest_helps() const {
  return !ranking.empty() && ranking.front().fit.explains_more_than(contract_on_sample) && ranking.front().fit.misfit() < 0.5 * contract_on_sample.misfit();
}

std::string Explanation::name_of(const Candidate& candidate) const {
  std::string name;
  for (const std::size_t n : candidate.changes) name += (name.empty() ? "" : " + ") + hypotheses[n].name;
  return name;
}

std::string Explanation::says(const Candidate& candidate) const {
  std::string text;
  for (const std::size_t n : candidate.changes) text += (text.empty() ? "" : ", and ") + hypotheses[n].says;
  return text;
}

Explanation explain(const Evidence& evidence) { return Search(evidence).run(); }

}  // namespace attest::diagnose
