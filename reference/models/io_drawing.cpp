// SPDX-License-Identifier: Apache-2.0
// The SVG of traffic against fast memory and against length.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "reference/models/io_report.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

struct Point {
  double x, y;
};
struct Curve {
  std::string name;
  std::vector<Point> points;
};

constexpr double kWidth = 420, kHeight = 320, kMargin = 56;
constexpr std::array<const char*, 7> kColours = {"#000000", "#c1272d", "#0050a0", "#7a7a00",
                                                 "#008176", "#7b2d8b", "#b35c00"};

void add_points(std::vector<Curve>& curves, double x, const IoReport& report) {
  for (std::size_t n = 0; n < report.rows.size(); ++n) {
    if (curves.size() <= n) curves.push_back({report.rows[n].model, {}});
    curves[n].points.push_back({x, report.rows[n].bytes});
  }
}

/// Both axes logarithmic, powers of two marked on x and powers of ten on y.
std::string panel(double left, const char* label, const std::vector<Curve>& curves) {
  double x_min = HUGE_VAL, x_max = 0, y_min = HUGE_VAL, y_max = 0;
  for (const Curve& curve : curves)
    for (const Point& p : curve.points) {
      x_min = std::min(x_min, p.x), x_max = std::max(x_max, p.x);
      y_min = std::min(y_min, p.y), y_max = std::max(y_max, p.y);
    }
  if (x_max <= 0 || y_max <= 0) return {};
  const auto at = [](double v, double low, double high) {
    return high > low ? std::log(v / low) / std::log(high / low) : 0.5;
  };
  const auto place_x = [&](double x) { return left + kMargin + at(x, x_min, x_max) * (kWidth - 2 * kMargin); };
  const auto place_y = [&](double y) { return kHeight - kMargin - at(y, y_min, y_max) * (kHeight - 2 * kMargin); };
  std::string svg = fmt::format(
      "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' stroke='#888'/>\n"
      "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
      left + kMargin, kMargin, kWidth - 2 * kMargin, kHeight - 2 * kMargin, left + kWidth / 2, kHeight - 12, label);
  for (const Point& p : curves.front().points)
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle' font-size='8'>{:g}</text>\n", place_x(p.x),
                       kHeight - kMargin + 14, p.x);
  for (double y = std::pow(10, std::ceil(std::log10(y_min))); y <= y_max; y *= 10)
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end' font-size='8'>{:.0e} B</text>\n",
                       left + kMargin - 4, place_y(y) + 3, y);
  for (std::size_t n = 0; n < curves.size(); ++n) {
    std::string line;
    for (const Point& p : curves[n].points) line += fmt::format("{:.1f},{:.1f} ", place_x(p.x), place_y(p.y));
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}'/>\n", line, kColours[n % kColours.size()]);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' fill='{}' font-size='9'>{}</text>\n",
                       left + kMargin + 8 + 90 * static_cast<double>(n % 3), 20 + 12 * static_cast<double>(n / 3),
                       kColours[n % kColours.size()], curves[n].name);
  }
  return svg;
}

}  // namespace

std::string draw_traffic(const attest_problem& problem, const IoMachine& machine) {
  // Block masks belong to one length: the drawing leaves them out.
  attest_problem plain = problem;
  plain.has_block_mask = 0;
  std::vector<Curve> by_memory, by_length;
  for (std::int64_t kib = 16; kib <= 1024; kib *= 2) {
    IoMachine other = machine;
    other.fast_bytes = kib << 10;
    try {
      add_points(by_memory, static_cast<double>(kib), io_report(plain, nullptr, other));
    } catch (const InvalidRequest&) {
      continue;  // too small for any tile
    }
  }
  for (std::int64_t n = 256; n <= 8192; n *= 2) {
    attest_problem longer = plain;
    longer.batch = 1, longer.seq_q = &n, longer.seq_k = &n;
    longer.max_q = longer.max_k = longer.rows_q = longer.rows_k = n;
    try {
      add_points(by_length, static_cast<double>(n), io_report(longer, nullptr, machine));
    } catch (const InvalidRequest&) {
      break;  // too many tiles to walk
    }
  }
  if (by_memory.empty() || by_length.empty())
    throw InvalidRequest("svg", "a drawing", "a case whose tiles fit some memory of 16 KiB to 1 MiB");
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{:.0f}' height='{:.0f}' font-family='sans-serif' "
      "font-size='11'>\n<rect width='100%' height='100%' fill='white'/>\n{}{}</svg>\n",
      2 * kWidth, kHeight, panel(0, "fast memory, KiB", by_memory),
      panel(kWidth, "queries = keys (one sequence)", by_length));
}

}  // namespace attest
