// SPDX-License-Identifier: Apache-2.0
// How well a reading fits the outputs.
#include <algorithm>
#include <cmath>

#include "reference/diagnose/explain.h"
#include "reference/verify/judge.h"

namespace attest::diagnose {
namespace {

// An element of another class, or off by more, counts as this: one NaN must not hide that all else fits.
constexpr double kMostScore = 100;

void compare(const Elements& want, std::span<const double> got, Dtype type, TensorFit& fit) {
  if (!want.known) {
    fit.unknown += static_cast<std::int64_t>(got.size());
    return;
  }
  for (std::size_t n = 0; n < got.size(); ++n) {
    const double score = element_score(want.value[n], got[n], want.tolerance[n], type);
    ++fit.total;
    if (score <= 1) ++fit.explained;
    const double limited = score <= kMostScore ? score : kMostScore;  // NaN becomes kMostScore
    fit.squares += limited * limited;
  }
}

class Comparison {
 public:
  Comparison(const Evidence& evidence, Fit& fit) : evidence_(evidence), fit_(fit) {}

  void add(TensorId id, const RowAt& at, const Elements& want) { add(name_of(id), evidence_.of(id), id, at, want); }
  void add_bias(const RowAt& at, const Elements& want) {
    std::vector<double> got(static_cast<std::size_t>(evidence_.d_bias.extents().width));
    evidence_.d_bias.read(at.b, at.i, at.h, got);
    const Dtype type = evidence_.d_bias.type();
    compare(want, got, type == Dtype::f64 ? evidence_.problem.lse_dtype() : type, tensor("dbias"));
  }
  void add_lse(const RowAt& at, const Elements& want) { add("lse", evidence_.lse, TensorId::o, at, want); }

 private:
  void add(std::string_view name, const TensorRows& rows, TensorId id, const RowAt& at, const Elements& want) {
    if (!rows.present()) return;
    std::vector<double> got(static_cast<std::size_t>(rows.extents().width));
    rows.read(at.b, row_of_token(evidence_.problem, id, at.b, at.i), at.h, got);
    const Problem& p = evidence_.problem;
    compare(want, got, name == "lse" ? p.lse_dtype() : p.output_dtype(), tensor(name));
  }

  TensorFit& tensor(std::string_view name) {
    for (TensorFit& fit : fit_.tensors) {
      if (fit.tensor == name) return fit;
    }
    fit_.tensors.push_back({std::string(name), 0, 0, 0, 0});
    return fit_.tensors.back();
  }

  const Evidence& evidence_;
  Fit& fit_;
};

Elements row_of(const Elements& all, std::int64_t row, std::int64_t width) {
  if (!all.known) return {};
  const auto first = static_cast<std::ptrdiff_t>(row * width);
  const auto last = first + static_cast<std::ptrdiff_t>(width);
  return {true, {all.value.begin() + first, all.value.begin() + last}, {all.tolerance.begin() + first, all.tolerance.begin() + last}};
}

}  // namespace

double Fit::misfit() const {
  double sum = 0;
  for (const TensorFit& tensor : tensors) sum += tensor.misfit();
  return tensors.empty() ? kMostScore * kMostScore : sum / static_cast<double>(tensors.size());
}

bool Fit::explained() const {
  std::int64_t known = 0;
  for (const TensorFit& tensor : tensors) {
    if (tensor.explained < tensor.total) return false;
    known += tensor.total;
  }
  return known > 0;
}

bool Fit::explains_more_than(const Fit& other) const {
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorFit& t) {
    const TensorFit* same = other.find(t.tensor);
    return same == nullptr || t.explained > same->explained;
  });
}

const TensorFit* Fit::find(const std::string& tensor) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorFit& t) { return t.tensor == tensor; });
  return found == tensors.end() ? nullptr : &*found;
}

Fit fit_of(const Evaluator& evaluator, const Evidence& evidence, const Passes& passes, const Sample& sample) {
  Evaluator::forget_keys();
  Fit fit;
  Comparison comparison(evidence, fit);
  const bool dq = evidence.of(TensorId::dq).present();
  for (const RowAt& at : sample.rows) {
    const RowResult row = evaluator.row(passes, at, dq);
    comparison.add(TensorId::o, at, row.o);
    comparison.add_lse(at, row.lse);
    comparison.add(TensorId::dq, at, row.dq);
  }
  const Problem& p = evidence.problem;
  for (const HeadAt& head : sample.heads) {
    const ColumnResult columns = evaluator.columns(passes, head);
    const std::int64_t count = head.keys.empty() ? p.seq_k[head.b] : static_cast<std::int64_t>(head.keys.size());
    for (std::int64_t n = 0; n < count; ++n) {
      const RowAt at{head.b, head.head_kv, head.keys.empty() ? n : head.keys[static_cast<std::size_t>(n)]};
      comparison.add(TensorId::dk, at, row_of(columns.dk, n, p.dim));
      comparison.add(TensorId::dv, at, row_of(columns.dv, n, p.width_v()));
    }
  }
  for (const RowAt& at : sample.bias_rows) comparison.add_bias(at, evaluator.bias_row(passes, at));
  return fit;
}

}  // namespace attest::diagnose
