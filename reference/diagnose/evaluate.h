// SPDX-License-Identifier: Apache-2.0
// Attention of single rows under any reading, in double, with what a kernel of the stated arithmetic that computed this
// reading could be off by. It is not the oracle: the oracle says what is right, this says what a mistake would give.
#pragma once

#include <Eigen/Core>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "reference/diagnose/evidence.h"
#include "reference/diagnose/reading.h"

namespace attest::diagnose {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Elements {
  bool known = false;  // the reading says nothing about them otherwise
  std::vector<double> value;      // [width]
  std::vector<double> tolerance;  // [width]
};

struct RowResult {
  Elements o;    // [Dv]
  Elements lse;  // [1]
  Elements dq;   // [D]
};

/// Euclidean.
double norm(const std::vector<double>& x);

/// A key/value head whose gradients are looked at: at all of its keys, or where `keys` is not empty at those.
struct HeadAt {
  std::int64_t b = 0;
  std::int64_t head_kv = 0;
  std::vector<std::int64_t> keys = {};
};

struct ColumnResult {
  Elements dk;  // [keys, D]
  Elements dv;  // [keys, Dv]
};

/// What the two passes are taken for. The backward of a flash kernel takes LSE and O from its forward; one that is wrong
/// in the same way in both is `consistent`.
struct Passes {
  const Reading* forward;
  const Reading* backward;
  bool consistent;  // the backward normalises by its own reading
};

/// One row of weights and what is made of it; see docs/diagnosis.md, "What counts as explained".
struct SoftRow {
  bool known = false;
  RowAt at;                  // as the reading has it
  bool empty = false;
  double lse = 0;            // as the reading reports it
  double lse_tolerance = 0;
  double score_error = 0;    // absolute, of a score; so relative, of P
  std::vector<double> score;       // [n]; -inf hidden
  std::vector<double> slope;       // [n]; derivative of the softcap
  std::vector<double> p;           // [n]
  std::vector<double> keep;        // [n]; Z and its scale
  std::vector<double> o;           // [Dv]
  std::vector<double> o_tolerance; // [Dv]
  std::vector<double> q;           // [D]
};

class Evaluator {
 public:
  /// `evidence` must outlive this.
  explicit Evaluator(const Evidence& evidence);

  RowResult row(const Passes& passes, const RowAt& at, bool gradients) const;
  /// Costs every score of the head's group; of listed keys, only theirs: then P comes from the LSE and delta from the O of
  /// the evidence, as a backward has them, and nothing is known of readings that would take others.
  ColumnResult columns(const Passes& passes, const HeadAt& head) const;
  /// A row of dbias, in the bias's own indices: [Sk|1]. Costs the rows that share it.
  Elements bias_row(const Passes& passes, const RowAt& at) const;
  /// Keys that a reading finds elsewhere are kept per thread until this is called; readings are told apart by address.
  static void forget_keys();
  /// The forward of one row, for the stages that look at scores.
  SoftRow soft_row(const Reading& reading, const RowAt& at) const;

 private:
  struct Keys {
    Matrix k;  // [n, D]
    Matrix v;  // [n, Dv]
    std::vector<std::int64_t> j;  // [n]; indices of the keys
    std::vector<double> k_norm;  // [n]
    std::vector<double> v_norm;  // [n]
    std::vector<std::int64_t> outside;  // keys read outside of their tensor
  };
  using KeysPtr = std::shared_ptr<const Keys>;
  struct Backward {
    bool known = false;
    std::vector<double> p, ds, keep, e_p, e_ds;  // [n]; e_: tolerances
    std::vector<double> d_score, e_d_score;      // [n]; dS before the softcap's derivative
    std::vector<double> d_o;                     // [Dv]
  };

  KeysPtr keys_for(const Reading& reading, const RowAt& at) const;
  KeysPtr read_keys(const Reading& reading, const RowAt& at) const;
  bool place(const Reading& reading, const RowAt& at, RowAt& placed) const;
  bool read_query(const Reading& reading, TensorId id, const RowAt& at, std::vector<double>& out) const;
  void score(const Reading& reading, const Keys& keys, SoftRow& row) const;
  void mask(const Reading& reading, const Keys& keys, SoftRow& row) const;
  void softmax(const Reading& reading, const Keys& keys, SoftRow& row) const;
  double reported_lse(const Reading& reading, const SoftRow& row, double top, double sum) const;
  std::vector<double> tile_weights(const Reading& reading, const SoftRow& row, double top) const;
  SoftRow soft_row(const Reading& reading, const RowAt& at, KeysPtr& keys) const;
  bool delta_of(const Passes& passes, const RowAt& at, const SoftRow& own, double& delta, double& error) const;
  bool delta_of_captured(const Reading& reading, const RowAt& at, double& delta, double& error) const;
  ColumnResult whole_columns(const Passes& passes, const HeadAt& head) const;
  ColumnResult some_columns(const Passes& passes, const HeadAt& head) const;
  bool columns_known(const Reading& reading) const;
  Backward backward(const Passes& passes, const RowAt& at, const SoftRow& forward, SoftRow& own, KeysPtr& keys) const;

  const Evidence& evidence_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, KeysPtr> shared_keys_;
};

}  // namespace attest::diagnose
