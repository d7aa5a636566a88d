// SPDX-License-Identifier: Apache-2.0
// Where errors lie, and what the pattern of wrong gradients points to.
#include <gtest/gtest.h>

#include "tests/support/capture_file.h"

namespace attest {
namespace {

using testing_support::CaptureFile;
using testing_support::Fault;
using testing_support::Where;

const char* const kBackward = "heads=4/2 dim=16 q=33,20 k=49,41 causal=bottom-right softcap=2 dropout=0.2@9";

diagnose::Diagnosis of_backward(const char* cause, std::int64_t number = 0) { return CaptureFile(kBackward, Fault{cause, number, 0, Where::backward}).diagnose(); }

TEST(DiagnosePattern, PointsToTheStepThatTheWrongGradientsShare) {
  EXPECT_SAYS(of_backward("causal-dropped"), "where", "P of the backward is wrong, or dO");
  EXPECT_SAYS(of_backward("delta-missing"), "where", "dV is right, so P, its dropout and dO are: dS is wrong");
  EXPECT_SAYS(of_backward("softcap-slope-missing"), "where", "the derivative of the softcap");
  EXPECT_SAYS(of_backward("group-first-head"), "where", "dQ is right, so P and dS are: the sums over queries go wrong");
  EXPECT_SAYS(of_backward("dq-unscaled"), "where", "dQ is lost after dS");
  EXPECT_SAYS(of_backward("dk-unscaled"), "where", "dK is lost after dS");
  EXPECT_SAYS(of_backward("dv-undropped"), "where", "dV is lost after P");
  CaptureFile two(kBackward, Fault{"dq-unscaled", 0, 0, Where::backward});
  two.set("dv", 5, 3.0);
  EXPECT_SAYS(two.diagnose(), "where", "dQ and dV go wrong each for itself");
}

TEST(DiagnosePattern, BlamesAWrongForwardFirst) {
  EXPECT_SAYS(CaptureFile(kBackward, Fault{"scale-1", 0, 0, Where::both}).diagnose(), "where", "follow from an o or lse that is wrong already");
}

TEST(DiagnosePattern, AsksForTheGradientsThatAreNotThere) {
  CaptureFile file(kBackward, Fault{"dq-unscaled", 0, 0, Where::backward});
  file.tensors.erase("dk");
  EXPECT_SAYS(file.diagnose(), "where", "capture the others too");
}

TEST(DiagnosePattern, SaysSoWhereDBiasAloneIsWrong) {
  const char* call = "heads=2 dim=16 q=40,30 k=44,44 bias=11qk dbias=on";
  const diagnose::Diagnosis found = CaptureFile(call, Fault{"dbias-of-first", 0, 0, Where::backward}).diagnose();
  EXPECT_SAYS(found, "where", "dbias alone is wrong");
  EXPECT_SAYS(found, "values", "a dBias of the first sequence and head alone");
  EXPECT_FALSE(CaptureFile(call).diagnose().wrong);
}

TEST(DiagnoseWhere, NamesWrongHeadsAndSequences) {
  CaptureFile head("heads=3 dim=8 batch=2 q=20 k=20 direction=forward");
  std::vector<double> o = head.values("o");
  for (std::size_t n = 0; n < o.size(); ++n) o[n] += n / 8 % 3 == 1 ? 0.5 : 0;
  head.add("o", Dtype::f32, head.tensors["o"].shape, o);
  EXPECT_SAYS(head.diagnose(), "where", "o: heads 1 wrong, 0, 2 right");
  CaptureFile sequence("heads=3 dim=8 batch=2 q=20 k=20");
  std::vector<double> dk = sequence.values("dk");
  for (std::size_t n = dk.size() / 2; n < dk.size(); ++n) dk[n] += 0.5;
  sequence.add("dk", Dtype::f32, sequence.tensors["dk"].shape, dk);
  const diagnose::Diagnosis found = sequence.diagnose();
  EXPECT_SAYS(found, "where", "dk: sequences 1 wrong, 0 right");
  EXPECT_SAYS(found, "where", "dk: 20 of 20 keys wrong in [b=1 h=");
}

TEST(DiagnoseWhere, DetectsTilesFrom16To256) {
  for (const std::int64_t tile : {16, 32, 64, 128, 256}) {
    CaptureFile file("heads=1 dim=4 q=512 k=20 direction=forward");
    const std::vector<double> right = file.values("o");
    std::vector<double> o = right;
    for (std::size_t n = static_cast<std::size_t>(tile) * 4; n < static_cast<std::size_t>(2 * tile) * 4; ++n) o[n] += 0.5;
    file.add("o", Dtype::f32, file.tensors["o"].shape, o);
    EXPECT_SAYS(file.diagnose(), "where", tile == 256 ? "the errors fill tile 1 of 256" : "the errors fill tile 1 of " + std::to_string(tile));
  }
  // Every second tile of keys, in a gradient.
  CaptureFile keys("heads=1 dim=4 q=20 k=192");
  std::vector<double> dv = keys.values("dv");
  for (std::size_t n = 0; n < dv.size(); ++n) dv[n] += n / 4 / 32 % 2 == 1 ? 0.5 : 0;
  keys.add("dv", Dtype::f32, keys.tensors["dv"].shape, dv);
  EXPECT_SAYS(keys.diagnose(), "where", "dv: 96 of 192 keys wrong in [b=0 h=0] |.....+####+.....#####+");
  EXPECT_SAYS(keys.diagnose(), "where", "repeat every 64 from 32 on, 32 at a time");
  // The last place of each tile.
  CaptureFile edge("heads=1 dim=4 q=20 k=192");
  dv = edge.values("dv");
  for (std::size_t n = 0; n < dv.size(); ++n) dv[n] += n / 4 % 64 == 63 ? 0.5 : 0;
  edge.add("dv", Dtype::f32, edge.tensors["dv"].shape, dv);
  EXPECT_SAYS(edge.diagnose(), "where", "repeat with period 64");
}

TEST(DiagnoseWhere, ShowsWhatTheNearestReadingLeaves) {
  CaptureFile file("heads=1 dim=8 q=64 k=64 direction=forward", Fault{"scale-1", 0, 0, Where::both});
  std::vector<double> o = file.values("o");
  for (std::size_t n = 48 * 8; n < o.size(); ++n) o[n] += 0.5;
  file.add("o", Dtype::f32, file.tensors["o"].shape, o);
  const diagnose::Diagnosis found = file.diagnose();
  EXPECT_SAYS(found, "values", "the nearest is attention without the scale (scale 1)");
  EXPECT_SAYS(found, "where", "o: under scale-1 16 of 64 rows stay wrong in [b=0 h=0] |........................########|");
}

}  // namespace
}  // namespace attest
