// SPDX-License-Identifier: Apache-2.0
// Loading kernels: what is wrong with a library is said in one clear error.
#include "reference/verify/kernel.h"

#include <fstream>

#include <gtest/gtest.h>

#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

std::string error_of(const std::string& request) {
  try {
    load_kernels(request);
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "kernel");
    return error.what();
  }
  return "";
}

TEST(LoadKernels, FindsAllOrTheOneNamed) {
  EXPECT_GT(load_kernels(ATTEST_FAULTY_LIBRARY).size(), 5u);
  const std::vector<Kernel> one = load_kernels(std::string(ATTEST_FAULTY_LIBRARY) + ":scale-off");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name(), "scale-off");
  EXPECT_EQ(one[0].request(), std::string(ATTEST_FAULTY_LIBRARY) + ":scale-off");
  EXPECT_NE(error_of(std::string(ATTEST_FAULTY_LIBRARY) + ":other").find("scale-off"), std::string::npos);
}

TEST(LoadKernels, NamesWhatIsWrong) {
  EXPECT_NE(error_of("./missing.so").find("'./missing.so'"), std::string::npos);
  const std::string text = testing::TempDir() + "text.so";
  std::ofstream(text) << "not a library";
  EXPECT_NE(error_of(text).find("loadable shared library"), std::string::npos);
  EXPECT_NE(error_of(ATTEST_WRONG_LIBRARY_1).find("exports attest_kernels"), std::string::npos);
  EXPECT_NE(error_of(ATTEST_WRONG_LIBRARY_2).find("kernels for ABI version 1"), std::string::npos);
  EXPECT_NE(error_of(ATTEST_WRONG_LIBRARY_3).find("ABI version 99"), std::string::npos);
  EXPECT_NE(error_of(ATTEST_WRONG_LIBRARY_4).find("a function for each direction"), std::string::npos);
}

TEST(SelectKernels, NamesTheBuiltInOnesForAnUnknownName) {
  try {
    select_kernels({"flashy"}, {});
    FAIL();
  } catch (const InvalidRequest& error) {
    EXPECT_NE(std::string(error.what()).find("PATH.so[:NAME]"), std::string::npos);
  }
}

}  // namespace
}  // namespace attest
