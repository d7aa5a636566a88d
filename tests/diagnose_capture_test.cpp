// SPDX-License-Identifier: Apache-2.0
// Captures written to files, and what `attest diagnose` says of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "reference/diagnose/diagnosis.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/problem/safetensors.h"
#include "tests/support/capture_file.h"

namespace attest {
namespace {

using testing_support::CaptureFile;
using testing_support::Fault;

TEST(DiagnoseCapture, FindsNothingWrongInCorrectCalls) {
  for (const char* text : {"dtype=f16 heads=4/2 dim=16 q=20,33 k=41,49 qrows=36 krows=50 causal=bottom-right", "layout=thd heads=2 dim=16 q=20,33 k=41,49",
                           "dtype=bf16 layout=bhsd pad=left heads=2 dim=16 q=20,33 k=41,49"}) {
    const diagnose::Diagnosis found = CaptureFile(text).diagnose();
    EXPECT_FALSE(found.wrong) << diagnose::print(found);
    EXPECT_SAYS(found, "values", "as the contract has them");
    EXPECT_SAYS(found, "nan", "all outputs are finite");
    EXPECT_SAYS(found, "offsets", "hold");
    EXPECT_SAYS(found, "bound", "may be off by up to: o ");
  }
}

TEST(DiagnoseCapture, NamesTheMistakeBehindWrongValues) {
  const diagnose::Diagnosis found = CaptureFile("dtype=f16 heads=2 dim=16 q=20,33 k=41,49 causal=bottom-right", Fault{"causal-top-left", 0, 0, testing_support::Where::both}).diagnose();
  EXPECT_TRUE(found.wrong);
  EXPECT_SAYS(found, "values", "attention with causal top-left; you asked for bottom-right");
  EXPECT_NE(diagnose::json(found).find("\"wrong\": true"), std::string::npos);
}

TEST(DiagnoseCapture, SaysWhatIsWrongWithOffsets) {
  const auto with = [](const std::vector<std::int64_t>& cu) {
    CaptureFile file("layout=thd heads=2 dim=8 q=20,33 k=41,49");
    file.add_integers("cu_k", cu);
    return file.diagnose();
  };
  EXPECT_SAYS(with({0, 50, 41, 90}), "offsets", "falls at 2: 41 after 50");
  EXPECT_SAYS(with({1, 42, 91}), "offsets", "one too large: count from 0");
  EXPECT_SAYS(with({0, -3, 90}), "offsets", "below 0");
  EXPECT_SAYS(with({0, 41, 91}), "offsets", "the last offset is one too large");
  EXPECT_SAYS(with({0, 41, 89}), "offsets", "one too small?");
  EXPECT_SAYS(with({41, 49}), "offsets", "holds lengths, not offsets");
  CaptureFile padded("heads=2 dim=8 q=20,33 k=41,49");
  padded.add_integers("seq_k", {0, 20, 49});
  EXPECT_SAYS(padded.diagnose(), "offsets", "holds offsets, not lengths");
  padded.add_integers("seq_k", {41, 49});
  padded.metadata["max_k"] = "48";
  EXPECT_SAYS(padded.diagnose(), "offsets", "max_k is 48, the longest sequence has 49");
}

TEST(DiagnoseCapture, SaysWhatIsWrongWithTheCall) {
  CaptureFile file("heads=2 dim=8 q=20 k=30");
  file.metadata["layout"] = "bhsd";
  EXPECT_SAYS(file.diagnose(), "contract", "the shapes fit layout=bshd");
  CaptureFile types("heads=2 dim=8 q=20 k=30");
  types.add("v", Dtype::bf16, types.tensors["v"].shape, types.values("v"));
  EXPECT_SAYS(types.diagnose(), "contract", "have one type");
  CaptureFile scale("heads=2 dim=16 q=20 k=30");
  scale.metadata["scale"] = "0.0625";
  EXPECT_SAYS(scale.diagnose(), "scale", "this is 1/D");
}

TEST(DiagnoseCapture, CountsRowsThatSeeNothing) {
  const diagnose::Diagnosis found = CaptureFile("heads=2 dim=8 q=30 k=20 causal=bottom-right direction=forward").diagnose();
  EXPECT_SAYS(found, "coverage", "20 of 60 rows see no key, from [b=0 h=0 i=0] to [b=0 h=1 i=9]: causal bottom-right with Sq > Sk");
}

TEST(DiagnoseCapture, RefusesWhatIsNoCapture) {
  const std::string path = testing::TempDir() + "attest_no_capture.safetensors";
  std::ofstream(path) << "not a capture at all";
  EXPECT_THROW(diagnose::diagnose_capture(path), InvalidRequest);
  std::ofstream(path).close();
  EXPECT_THROW(diagnose::diagnose_capture(path), InvalidRequest);
  EXPECT_THROW(diagnose::diagnose_capture(testing::TempDir()), InvalidRequest);
  std::filesystem::remove(path);
  EXPECT_THROW(diagnose::diagnose_capture(path), InvalidRequest);
  CaptureFile file("heads=2 dim=8 q=20 k=30");
  file.metadata["causal"] = "sometimes";
  EXPECT_THROW(file.diagnose(), InvalidRequest);
  file.metadata["causal"] = "none";
  file.tensors.erase("v");
  EXPECT_THROW(file.diagnose(), InvalidRequest);
}

}  // namespace
}  // namespace attest
