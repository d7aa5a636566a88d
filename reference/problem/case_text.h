// SPDX-License-Identifier: Apache-2.0
// Case text: the one-line identity of a Problem. parse(print(p)) == p; defaults are left out when printed.
//
//   dtype=bf16 layout=thd heads=6/2 dim=64 q=3,0 k=5,2 causal=bottom-right window=7,0 dropout=0.1@42 fill=peaked@7
#pragma once

#include <string>
#include <string_view>

#include "reference/problem/problem.h"

namespace attest {

/// Throws InvalidRequest naming the field. The result has passed validate().
Problem parse_case(std::string_view text);

/// Canonical text: fields in a fixed order, defaults left out.
std::string print_case(const Problem& problem);

/// One line per field: name, form, default, meaning. For help texts.
std::string case_text_help();

}  // namespace attest
