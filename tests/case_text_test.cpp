// SPDX-License-Identifier: Apache-2.0
// Case text: what is read, what is printed, and that every error names its field.
#include "reference/problem/case_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "reference/problem/invalid_request.h"
#include "reference/verify/generate.h"

namespace attest {
namespace {

/// The field of the error that `text` gives, or "none".
std::string error_field(const std::string& text) {
  try {
    parse_case(text);
  } catch (const InvalidRequest& error) {
    return error.field();
  }
  return "none";
}

TEST(CaseText, EmptyTextIsAllDefaults) {
  EXPECT_EQ(parse_case(""), Problem{});
  EXPECT_EQ(print_case(Problem{}), "");
}

TEST(CaseText, ReadsTheExampleOfTheDesign) {
  const Problem p = parse_case(
      "dtype=bf16 layout=thd heads=6/2 dim=64 q=3,0 k=5,2 causal=bottom-right window=7,0 dropout=0.1@42 fill=peaked@7");
  EXPECT_EQ(p.dtype, Dtype::bf16);
  EXPECT_EQ(p.layout, Layout::thd);
  EXPECT_EQ(p.heads_q, 6);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_EQ(p.seq_q, (std::vector<std::int64_t>{3, 0}));
  EXPECT_EQ(p.seq_k, (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(p.causal, Causal::bottom_right);
  EXPECT_EQ(p.window, (Window{7, 0, Causal::none}));
  EXPECT_EQ(p.dropout, (Dropout{0.1, 42, 0}));
  EXPECT_EQ(p.fill.family, "peaked");
  EXPECT_EQ(p.fill.seed, 7u);
  EXPECT_EQ(print_case(p),
            "dtype=bf16 layout=thd q=3,0 k=5,2 heads=6/2 causal=bottom-right window=7,0 dropout=0.1@42 fill=peaked@7");
}

TEST(CaseText, ReadsEveryField) {
  const std::string text =
      "dtype=f8e4m3 out=bf16 layout=bhsd pad=left q=3,4 k=5,2 qrows=9 krows=8 heads=4/2 dim=16/8 scale=-0.5 softcap=15 "
      "bias=b11k:f32:hide=0.25 alibi=on causal=top-left window=7,-1 mask=1hq1:0.25 block=16x32:local=1+global=2+random=0.5 "
      "dropout=0.5@3+9 direction=backward dlse=on dbias=on strides.k=400,16,160 fill=rising:30@5";
  const Problem p = parse_case(text);
  EXPECT_EQ(print_case(p), text);
  EXPECT_EQ(p.output_dtype(), Dtype::bf16);
  EXPECT_EQ(p.pad, PadSide::left);
  EXPECT_EQ(p.rows_q(), 9);
  EXPECT_EQ(p.rows_k(), 8);
  EXPECT_EQ(p.width_v(), 8);
  EXPECT_EQ(p.scale, -0.5);
  EXPECT_EQ(p.bias, (Bias{{true, false, false, true}, Dtype::f32, 0.25}));
  EXPECT_EQ(p.mask, (ExplicitMask{{false, true, true, false}, 0.25}));
  EXPECT_EQ(p.block, (BlockMask{16, 32, 1, 2, 0.5}));
  EXPECT_EQ(p.dropout, (Dropout{0.5, 3, 9}));
  EXPECT_EQ(p.direction, Direction::backward);
  EXPECT_EQ(p.strides[static_cast<int>(TensorId::k)], (Strides{400, 16, 160}));
  EXPECT_EQ(p.fill.parameter, 30.0);
}

TEST(CaseText, BatchRepeatsSingleLengths) {
  const Problem p = parse_case("batch=3 q=7 k=9");
  EXPECT_EQ(p.seq_q, (std::vector<std::int64_t>{7, 7, 7}));
  EXPECT_EQ(p.seq_k, (std::vector<std::int64_t>{9, 9, 9}));
  EXPECT_EQ(print_case(p), "batch=3 q=7 k=9");
  EXPECT_EQ(parse_case("q=3,4 k=9").seq_k, (std::vector<std::int64_t>{9, 9}));
  EXPECT_EQ(error_field("batch=3 q=7,8 k=9"), "q");
}

TEST(CaseText, OffsetsBecomeLengths) {
  const Problem p = parse_case("layout=thd cuq=0,3,3 cuk=0,5,7");
  EXPECT_EQ(p.seq_q, (std::vector<std::int64_t>{3, 0}));
  EXPECT_EQ(p.seq_k, (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(error_field("layout=thd cuq=0,12,8,16 cuk=0,1,2,3"), "cuq");
  EXPECT_EQ(error_field("layout=thd cuq=1,3 cuk=0,5"), "cuq");
  EXPECT_EQ(error_field("layout=thd cuq=0,3 cuk=0,-5"), "cuk");
  EXPECT_EQ(error_field("cuq=0,3 k=5"), "cuq");
  EXPECT_EQ(error_field("layout=thd cuq=0,3 q=3 k=5"), "cuq");
}

TEST(CaseText, PathsMayHoldSpacesAndPercentSigns) {
  Problem p;
  p.fill = Fill{"file", std::nullopt, 0, "a b/100%.safetensors"};
  EXPECT_EQ(print_case(p), "fill=file:a%20b/100%25.safetensors");
  EXPECT_EQ(parse_case(print_case(p)), p);
  EXPECT_EQ(error_field("fill=file:a%2"), "fill");
}

struct BadCase {
  const char* text;
  const char* field;
};

class BadCases : public testing::TestWithParam<BadCase> {};

TEST_P(BadCases, NameTheirField) { EXPECT_EQ(error_field(GetParam().text), GetParam().field) << GetParam().text; }

INSTANTIATE_TEST_SUITE_P(
    CaseText, BadCases,
    testing::Values(BadCase{"colour=red", "case"}, BadCase{"q", "case"}, BadCase{"q=3 q=4", "q"}, BadCase{"q=-1", "q"},
                    BadCase{"k=-7", "k"}, BadCase{"q=", "q"}, BadCase{"q=3,", "q"}, BadCase{"q=1.5", "q"},
                    BadCase{"q=3000000000", "q"}, BadCase{"q=3,4 k=1,2,3", "k"}, BadCase{"heads=6/4", "heads"},
                    BadCase{"heads=0", "heads"}, BadCase{"heads=4/0", "heads"}, BadCase{"heads=1/2/3", "heads"},
                    BadCase{"dim=0", "dim"}, BadCase{"dim=64/0", "dim"}, BadCase{"dtype=f12", "dtype"},
                    BadCase{"dtype=f64 out=f32", "out"}, BadCase{"out=f64", "out"}, BadCase{"out=f8e4m3", "out"},
                    BadCase{"layout=sbhd", "layout"}, BadCase{"layout=thd pad=left", "pad"}, BadCase{"qrows=127", "qrows"},
                    BadCase{"layout=thd q=3,4 k=3,4 krows=6", "krows"}, BadCase{"scale=nan", "scale"},
                    BadCase{"scale=inf", "scale"}, BadCase{"scale=1e39", "scale"}, BadCase{"scale=x", "scale"},
                    BadCase{"softcap=-1", "softcap"}, BadCase{"softcap=nan", "softcap"}, BadCase{"softcap=1e-60", "softcap"},
                    BadCase{"bias=bhq", "bias"}, BadCase{"bias=hbqk", "bias"}, BadCase{"bias=bhqk:f64", "bias"},
                    BadCase{"bias=bhqk:hide=2", "bias"}, BadCase{"bias=bhqk:hide=nan", "bias"}, BadCase{"alibi=yes", "alibi"},
                    BadCase{"causal=left", "causal"}, BadCase{"window=3", "window"}, BadCase{"window=-2,0", "window"},
                    BadCase{"causal=top-left window=3,0,top-left", "window"}, BadCase{"mask=11qk:1.5", "mask"},
                    BadCase{"mask=11qk:nan", "mask"}, BadCase{"block=16:local=1", "block"},
                    BadCase{"block=0x16:local=1", "block"}, BadCase{"block=16x16:diagonal=1", "block"},
                    BadCase{"block=16x16:local=-2", "block"}, BadCase{"dropout=1", "dropout"}, BadCase{"dropout=-0.1", "dropout"},
                    BadCase{"dropout=nan", "dropout"}, BadCase{"dropout=0.99999999999", "dropout"},
                    BadCase{"dropout=0.1@-3", "dropout"}, BadCase{"dropout=0.1@3+4294967296", "dropout"},
                    BadCase{"direction=sideways", "direction"}, BadCase{"direction=forward dlse=on", "dlse"},
                    BadCase{"dbias=on", "dbias"}, BadCase{"bias=11qk direction=forward dbias=on", "dbias"},
                    BadCase{"page=16", "page"},
                    BadCase{"page=-1 direction=forward", "page"}, BadCase{"page=x direction=forward", "page"},
                    BadCase{"page=16 krows=200 direction=forward", "krows"},
                    BadCase{"page=16 direction=forward strides.k=0,64,64", "strides.k"},
                    BadCase{"page=16 layout=thd direction=forward strides.v=64,64", "strides.v"},
                    BadCase{"strides.q=64,64", "strides.q"}, BadCase{"layout=thd strides.q=1,64,64", "strides.q"},
                    BadCase{"strides.o=8192,64,0 heads=2", "strides.o"}, BadCase{"strides.q=8192,-64,64", "strides.q"},
                    BadCase{"strides.q=8192,63,8192", "strides.q"}, BadCase{"fill=gaussian", "fill"},
                    BadCase{"fill=normal:3", "fill"}, BadCase{"fill=peaked:x", "fill"}, BadCase{"fill=normal@-1", "fill"},
                    BadCase{"fill=file:", "fill"}));

TEST(CaseText, ErrorsSayWhatWasGivenAndWhatIsAllowed) {
  try {
    parse_case("heads=6/4");
    FAIL() << "6/4 heads were accepted";
  } catch (const InvalidRequest& error) {
    EXPECT_STREQ(error.what(), "heads: got 6/4; query heads must be a multiple of key/value heads, which are at least 1");
  }
}

RC_GTEST_PROP(CaseTextProperty, ParseOfPrintIsIdentity, ()) {
  const Problem p = *cases(CaseSpace{});
  const std::string text = print_case(p);
  RC_ASSERT(parse_case(text) == p);
  RC_ASSERT(print_case(parse_case(text)) == text);
}

RC_GTEST_PROP(CaseTextProperty, AnyBytesParseOrNameAField, (const std::string& text)) {
  try {
    parse_case(text);
  } catch (const InvalidRequest& error) {
    RC_ASSERT(!error.field().empty());
  }
}

TEST(RandomCase, IsTheSameForTheSameSeedAndIndex) {
  const CaseSpace space;
  EXPECT_EQ(print_case(random_case(space, 5, 17)), print_case(random_case(space, 5, 17)));
  EXPECT_NE(print_case(random_case(space, 5, 17)), print_case(random_case(space, 5, 18)));
  EXPECT_NE(print_case(random_case(space, 5, 17)), print_case(random_case(space, 6, 17)));
}

TEST(RandomCase, KeepsToTheDirectionAndTheWork) {
  CaseSpace space;
  space.direction = Direction::forward;
  space.most_work = 1e6;
  for (std::uint64_t index = 0; index < 200; ++index) {
    const Problem p = random_case(space, 1, index);
    EXPECT_EQ(p.direction, Direction::forward);
    EXPECT_LE(forward_work(p), 1e6);
  }
}

}  // namespace
}  // namespace attest
