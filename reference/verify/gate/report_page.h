// SPDX-License-Identifier: Apache-2.0
// report_page.html, which the build turns into a string.
#pragma once

namespace attest {

extern const char* const kReportPage;

}  // namespace attest
