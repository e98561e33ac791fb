// bernoulli_probabilities, multinomial_weights: copies, in float32 (float64 for float64), of what
// elements are drawn by. A value that nothing can be drawn by is reported as an invalid index is.
//
//   probabilities  a thread for each element
//   weights        a block for each row, of 1024 threads if rows are long, else of a warp: it
//                  copies, and counts the elements above 0
// Bytes: one read, one write. Operations: two comparisons and a count an element.
// Source: PyTorch asserts on the device; written for this library. Not timed: a draw sorts or scans
// the row after it.
#include "../../draw_report.cuh"
#include "../../primitives/row_tile.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256, kRowThreads = 1024, kInFlight = 4;
constexpr int64_t kShortRow = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_probabilities(const void* x, DType dtype, T* y, int64_t count,
                       const __grid_constant__ IndexErrorSink errors) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const T value = load_floating<T>(x, i, dtype);
  if (!(value >= T(0) && value <= T(1)))
    report_draw(errors, {DrawFault::Probability, static_cast<double>(value), i, 0});
  y[i] = value;
}

// One thread of a row reports one fault of it.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    copy_weights(const void* x, DType dtype, T* y, int64_t rows, int64_t n, int64_t least,
                 const __grid_constant__ IndexErrorSink errors) {
  __shared__ int32_t shared[32];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    int32_t above = 0;
    for (int64_t first = threadIdx.x; first < n; first += kInFlight * blockDim.x) {
      T values[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; k++) {
        const int64_t i = first + k * blockDim.x;
        values[k] = i < n ? load_floating<T>(x, row * n + i, dtype) : T(0);
      }
#pragma unroll
      for (int k = 0; k < kInFlight; k++) {
        const int64_t i = first + k * blockDim.x;
        const T value = values[k];
        if (!(value >= T(0)) || isinf(value))
          report_draw(errors, {DrawFault::Weight, static_cast<double>(value), row * n + i, least});
        above += value > T(0) ? 1 : 0;
        if (i < n) y[row * n + i] = value;
      }
    }
    above = block_reduce(above, SumOp(), 0, shared);
    if (threadIdx.x == 0 && above < least)
      report_draw(errors, {above == 0 ? DrawFault::NoWeight : DrawFault::FewWeights,
                           static_cast<double>(above), row, least});
  }
}

// Calls fn with a value of the type in which y is stored.
template <class F>
void with_result_type(const TensorView& y, F&& fn) {
  if (y.dtype == DType::Float64)
    fn(double());
  else
    fn(float());
}

}  // namespace

Status bernoulli_probabilities(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (x.numel == 0) return kOk;
  const Stream& stream = stream_of(call);
  const auto blocks = static_cast<unsigned>(ceil_div(x.numel, kThreads));
  with_result_type(y, [&](auto type) {
    using T = decltype(type);
    copy_probabilities<T><<<blocks, kThreads, 0, stream.handle>>>(
        x.data, x.dtype, static_cast<T*>(y.data), x.numel, stream.index_errors(call));
  });
  return launched(call);
}

Status multinomial_weights(const KernelCall& call) {
  const TensorView &x = call.input(0), &wanted = call.input(1), &y = call.output(0);
  if (x.numel == 0) return kOk;
  const auto least = static_cast<int64_t>(wanted.is_immediate ? wanted.scalar : 1);
  const int64_t n = x.sizes[x.ndim - 1], rows = x.numel / n;
  const Stream& stream = stream_of(call);
  const auto blocks = static_cast<unsigned>(rows < (1 << 20) ? rows : (1 << 20));
  const int threads = n <= kShortRow ? kWarpSize : kRowThreads;
  with_result_type(y, [&](auto type) {
    using T = decltype(type);
    copy_weights<T><<<blocks, threads, 0, stream.handle>>>(
        x.data, x.dtype, static_cast<T*>(y.data), rows, n, least, stream.index_errors(call));
  });
  return launched(call);
}

}  // namespace shardwise::cuda
