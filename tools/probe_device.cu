// SPDX-License-Identifier: Apache-2.0
// Measures what the error bounds assume about a GPU (docs/numerics.md) and prints it as Markdown: errors of
// ex2.approx, lg2.approx and tanh.approx over all floats of a range, and how mma.sync adds: terms per step, bits kept
// when addends are aligned, rounding, subnormals.
//
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I. tools/probe_device.cu -o probe_device && ./probe_device
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

// ---- approximate functions

enum class Function { exp2, log2, tanh };

__device__ float approximate(Function function, float x) {
  float y;
  switch (function) {
    case Function::exp2:
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
      break;
    case Function::log2:
      asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
      break;
    default:
      asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  }
  return y;
}

struct Worst {
  double relative;
  double absolute;
  unsigned at;  // bits of the x of the worst relative error
  unsigned inexact_integers;
};

/// Every float with bits in [first, last]; those whose exact result is below 2^-126 are left out of the errors.
__global__ void scan(Function function, unsigned first, unsigned last, Worst* worst) {
  Worst mine = {0, 0, 0, 0};
  for (unsigned long long bits = first + blockIdx.x * blockDim.x + threadIdx.x; bits <= last;
       bits += static_cast<unsigned long long>(gridDim.x) * blockDim.x) {
    const float x = __uint_as_float(static_cast<unsigned>(bits));
    const double want = function == Function::exp2   ? exp2(static_cast<double>(x))
                        : function == Function::log2 ? log2(static_cast<double>(x))
                                                     : tanh(static_cast<double>(x));
    const double got = approximate(function, x);
    if (function == Function::exp2 && x == truncf(x) && x >= -126 && got != want) ++mine.inexact_integers;
    if (fabs(want) < 1.1754943508222875e-38) continue;
    const double absolute = fabs(got - want);
    const double relative = absolute / fabs(want);
    if (relative > mine.relative) {
      mine.relative = relative;
      mine.at = static_cast<unsigned>(bits);
    }
    if (absolute > mine.absolute) mine.absolute = absolute;
  }
  worst[blockIdx.x * blockDim.x + threadIdx.x] = mine;
}

Worst scan_all(Function function, float from, float to) {
  unsigned first = 0, last = 0;
  std::memcpy(&first, &from, 4);
  std::memcpy(&last, &to, 4);
  constexpr int kBlocks = 1056, kThreads = 256;
  Worst* device = nullptr;
  check(cudaMalloc(&device, sizeof(Worst) * kBlocks * kThreads), "cudaMalloc");
  scan<<<kBlocks, kThreads>>>(function, first, last, device);
  check(cudaGetLastError(), "scan");
  std::vector<Worst> all(kBlocks * kThreads);
  check(cudaMemcpy(all.data(), device, sizeof(Worst) * all.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaFree(device), "cudaFree");
  Worst total = {0, 0, 0, 0};
  for (const Worst& one : all) {
    total.inexact_integers += one.inexact_integers;
    if (one.absolute > total.absolute) total.absolute = one.absolute;
    if (one.relative > total.relative) {
      total.relative = one.relative;
      total.at = one.at;
    }
  }
  return total;
}

void print_function(const char* name, const char* range, const Worst& worst) {
  float x = 0;
  std::memcpy(&x, &worst.at, 4);
  std::printf("| %s | %s | 2^%.2f at %.9g | 2^%.2f |\n", name, range, std::log2(worst.relative), x,
              std::log2(worst.absolute));
}

// ---- mma.sync: row 0 of A times column 0 of B, plus C, for k products

/// Element types by their mma name; `kTerms` products of one instruction, `bits` packs a float.
struct F16 {
  static constexpr int kTerms = 16, kPerWord = 2;
  static constexpr const char* kName = "f16";
  static __device__ unsigned bits(float x) { return __half_as_ushort(__float2half_rn(x)); }
};
struct Bf16 {
  static constexpr int kTerms = 16, kPerWord = 2;
  static constexpr const char* kName = "bf16";
  static __device__ unsigned bits(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
};
struct E4m3 {
  static constexpr int kTerms = 32, kPerWord = 4;
  static constexpr const char* kName = "e4m3";
  static __device__ unsigned bits(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
};

template <typename Type>
__device__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#define ATTEST_MMA(shape)                                                                         \
  asm volatile("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (std::is_same_v<Type, F16>) ATTEST_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  if constexpr (std::is_same_v<Type, Bf16>) ATTEST_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
#if __CUDA_ARCH__ >= 890
  if constexpr (std::is_same_v<Type, E4m3>) ATTEST_MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32");
#endif
#undef ATTEST_MMA
}

/// out = c + sum over k of a[k] * b[k] by one instruction; only row 0 and column 0 are not zero.
template <typename Type>
__global__ void dot(const float* a, const float* b, float c, float* out) {
  const int group = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned a_words[4] = {}, b_words[2] = {};
  if (group == 0) {
    for (int half = 0; half < 2; ++half) {
      for (int e = 0; e < Type::kPerWord; ++e) {
        const int k = half * (Type::kTerms / 2) + t * Type::kPerWord + e;
        const int shift = e * (32 / Type::kPerWord);
        a_words[2 * half] |= Type::bits(a[k]) << shift;
        b_words[half] |= Type::bits(b[k]) << shift;
      }
    }
  }
  float sum[4] = {threadIdx.x == 0 ? c : 0, 0, 0, 0};
  mma<Type>(sum, a_words, b_words);
  if (threadIdx.x == 0) *out = sum[0];
}

template <typename Type>
class Probe {
 public:
  Probe() {
    check(cudaMalloc(&device_, sizeof(float) * (2 * Type::kTerms + 1)), "cudaMalloc");
    clear();
  }
  ~Probe() { cudaFree(device_); }
  void clear() {
    a_.assign(Type::kTerms, 0);
    b_.assign(Type::kTerms, 0);
  }
  /// Product k is `left * right`, both must be values of the type.
  void term(int k, float left, float right) {
    a_[k] = left;
    b_[k] = right;
  }
  float run(float c) {
    check(cudaMemcpy(device_, a_.data(), 4 * Type::kTerms, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpy(device_ + Type::kTerms, b_.data(), 4 * Type::kTerms, cudaMemcpyHostToDevice), "cudaMemcpy");
    dot<Type><<<1, 32>>>(device_, device_ + Type::kTerms, c, device_ + 2 * Type::kTerms);
    check(cudaGetLastError(), "dot");
    float out = 0;
    check(cudaMemcpy(&out, device_ + 2 * Type::kTerms, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return out;
  }

 private:
  float* device_ = nullptr;
  std::vector<float> a_;
  std::vector<float> b_;
};

/// Two factors within every type's range whose product is 2^exponent.
template <typename Type>
void power_term(Probe<Type>& probe, int k, int exponent, float sign = 1) {
  const int half = exponent / 2;
  probe.term(k, sign * std::ldexp(1.0f, half), std::ldexp(1.0f, exponent - half));
}

/// Products that are added before the first rounding: beside c = 2^24 a product of 1 is half an ulp and is lost by
/// itself; two of them, in terms 0 and k, count only where both fall into one step.
template <typename Type>
int terms_per_step() {
  int step = 1;
  for (int k = 1; k < Type::kTerms; ++k) {
    Probe<Type> probe;
    power_term(probe, 0, 0);
    power_term(probe, k, 0);
    if (probe.run(16777216.0f) == 16777218.0f) step = k + 1;
  }
  return step;
}

/// Bits kept below the largest addend 1: the largest n for which 2^-n, thrice (so that it counts even after
/// truncation of the normalised sum), beside 1 and -1 is not lost.
template <typename Type>
int kept_bits() {
  int kept = 0;
  for (int n = 1; n <= 34; ++n) {
    Probe<Type> probe;
    // e4m3 holds products from 2^-18 to 2^16, so the large terms move up first.
    const int up = std::is_same_v<Type, E4m3> ? (n < 16 ? n : 16) : 0;
    power_term(probe, 0, up);
    power_term(probe, 1, up, -1);
    power_term(probe, 2, up - n);
    if (probe.run(0) != 0) kept = n;
  }
  return kept;
}

/// The same with the accumulator as the largest addend: c = 1, product -1, product 2^-n.
template <typename Type>
int kept_bits_beside_c() {
  int kept = 0;
  for (int n = 1; n <= 34; ++n) {
    Probe<Type> probe;
    const int up = std::is_same_v<Type, E4m3> ? (n < 16 ? n : 16) : 0;
    power_term(probe, 0, up, -1);
    power_term(probe, 1, up - n);
    if (probe.run(std::ldexp(1.0f, up)) != 0) kept = n;
  }
  return kept;
}

/// What becomes of 1 + 3/4 ulp: nearest gives 1 + ulp, truncation 1.
template <typename Type>
std::string rounding() {
  Probe<Type> probe;
  power_term(probe, 0, -24);
  power_term(probe, 1, -25);
  const float up = probe.run(1.0f);
  probe.clear();
  power_term(probe, 0, -24, -1);
  power_term(probe, 1, -25, -1);
  const float down = probe.run(-1.0f);
  if (up == 1.0f && down == -1.0f) return "toward zero";
  if (up > 1.0f && down < -1.0f) return "to nearest";
  return "other";
}

template <typename Type>
std::string subnormals(float smallest) {
  Probe<Type> probe;
  probe.term(0, smallest, 1.0f);
  return probe.run(0) == smallest ? "kept" : "flushed";
}

template <typename Type>
void print_mma(float smallest) {
  std::printf("| mma.sync %s | %d of %d | %d | %d | %s | %s |\n", Type::kName, terms_per_step<Type>(), Type::kTerms,
              kept_bits<Type>(), kept_bits_beside_c<Type>(), rounding<Type>().c_str(),
              subnormals<Type>(smallest).c_str());
}

// ---- conversions

__global__ void convert_subnormals(float* out) {
  out[0] = __half2float(__float2half_rn(ldexpf(3.0f, -24)));
  out[1] = __bfloat162float(__float2bfloat16_rn(ldexpf(3.0f, -133)));
  out[2] = static_cast<float>(__nv_fp8_e4m3(ldexpf(3.0f, -9)));
}

}  // namespace

int main() {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("Measured on %s (compute capability %d.%d).\n\n", device.name, device.major, device.minor);
  std::printf(
      "| instruction | every float in | largest relative error | largest absolute error |\n|---|---|---|---|\n");
  const Worst exp2_worst = scan_all(Function::exp2, -0.0f, -150.0f);
  print_function("ex2.approx.ftz.f32", "[-150, -0], result at least 2^-126", exp2_worst);
  print_function("lg2.approx.ftz.f32", "[2^-126, 1/2]", scan_all(Function::log2, 0x1p-126f, 0.5f));
  print_function("lg2.approx.ftz.f32", "[1/2, 2]", scan_all(Function::log2, 0.5f, 2.0f));
  print_function("lg2.approx.ftz.f32", "[2, 2^127]", scan_all(Function::log2, 2.0f, 0x1p127f));
  print_function("tanh.approx.f32", "[2^-126, 32]", scan_all(Function::tanh, 0x1p-126f, 32.0f));
  std::printf("\nex2.approx is inexact at %u of the integers of [-126, 0].\n\n", exp2_worst.inexact_integers);

  std::printf(
      "| instruction | products before the first rounding | fraction bits kept beside a product | beside the "
      "accumulator | rounding to f32 | subnormal operands |\n|---|---|---|---|---|---|\n");
  print_mma<F16>(std::ldexp(1.0f, -24));
  print_mma<Bf16>(std::ldexp(1.0f, -126));
  if (device.major * 10 + device.minor >= 89) print_mma<E4m3>(std::ldexp(1.0f, -9));

  float* out = nullptr;
  check(cudaMalloc(&out, 12), "cudaMalloc");
  convert_subnormals<<<1, 1>>>(out);
  float got[3] = {};
  check(cudaMemcpy(got, out, 12, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaFree(out), "cudaFree");
  std::printf("\nConversions from f32 keep subnormals: f16 %s, bf16 %s, e4m3 %s.\n",
              got[0] == std::ldexp(3.0f, -24) ? "yes" : "no", got[1] == std::ldexp(3.0f, -133) ? "yes" : "no",
              got[2] == std::ldexp(3.0f, -9) ? "yes" : "no");
  return 0;
}
