// float32 products on the tensor cores, by three TF32 products.
//
// Each operand is the sum of two TF32 numbers (8 bits of exponent, 10 of mantissa): x = high + low,
// high = x to the nearest, low = x - high to the nearest. Then a b = a_high b_high + (a_high b_low
// + a_low b_high) + a_low b_low. The last term is omitted: it is as small as the error of high +
// low (2^-22 of x). The small products come first, so that the large one is added to their sum.
// Layout: high and low of both operands are compact copies in scratch memory, contiguous along the
// contiguous dim of the operand, with rows at multiples of 16 bytes. They follow each other along
// k, those of a in the opposite order: the small products are one product over 2 k.
// Grid: the splitting kernel has blocks of 256 threads with four elements each: 1024 elements of a
// row of an operand by up to 65,535 rows, beyond which blocks take several. cuBLASLt computes the
// products.
// Bytes: 12 for each element of a and b, and those of the products. FLOPs 6 m n k at TF32's rate.
// Numerics: tensor cores truncate addends to the float32 of the sum, so the loss grows with the
// sum: 2.4e-9 k of the product, 7 to 20 times the error of float32 at k = 1024 and 4096. So they
// add up at most 512 products, and y accumulates these sums with rounding to nearest; below k =
// 2048, where float32's error is smaller, 384. Only the large product needs it: 4096 cubed takes
// 1520 us with 384, 1720 with 256. Infinities give NaN, since inf x 0 occurs. The same bits in
// every run.
// Source: Markidis et al., arXiv:1803.04014; Ootomo and Yokota, arXiv:2203.03341. On an H200, 4096
// cubed: 1390 us (99 TFLOP/s of float32 work), float32 2697. The error is at most 3.9 times that of
// cuBLASLt's float32 (k from 512 to 16384, results of 515 x 640 to 2048 x 2048).
// Versions: the small products as two 1427; other algorithms of cuBLASLt for the large one 1410 to
// 1830; sums of 512 for all k had 6 times the error at k = 512, where float32's kernels split k.
#include "matmul.h"

namespace shardwise::cuda {
namespace {

// Sides from which the copies are cheap beside the product, and the product is longer than the
// launches.
constexpr int64_t kShortestSide = 512;

// Products in one sum on the tensor cores: a multiple of their kernels' steps and of the alignment.
// The last sum may be shorter.
int64_t sum_length(int64_t k) {
  const int64_t longest = k < 2048 ? 384 : 512;
  return round_up(ceil_div(k, ceil_div(k, longest)), 32);
}

// Rows of `inner` contiguous elements, the batch first, and their high and low copies: two in
// memory, one k after the other.
struct Rows {
  const float* data;
  int64_t batch, outer, inner, batch_stride, outer_stride;
  bool along_columns;  // of the matrix
  bool inner_is_k;

  SW_HOST_DEVICE int64_t lines() const { return batch * outer; }
  SW_HOST_DEVICE int64_t half_pitch() const { return round_up(inner, 4); }
  SW_HOST_DEVICE int64_t pitch() const { return half_pitch() * (inner_is_k ? 2 : 1); }
  // offset of the second copy
  int64_t second() const { return inner_is_k ? half_pitch() : outer * pitch(); }
  SW_HOST_DEVICE int64_t batch_pitch() const { return outer * half_pitch() * 2; }
  int64_t elements() const { return batch * batch_pitch(); }
  bool aligned() const {
    return (reinterpret_cast<uintptr_t>(data) & 15) == 0 && outer_stride % 4 == 0 &&
           batch_stride % 4 == 0;
  }
};

// A matrix of `rows` x `columns`; one of the two dims is k.
bool rows_of(const MatrixView& v, int64_t batch, int64_t rows, int64_t columns, bool columns_are_k,
             Rows* out) {
  const bool along_columns = v.column_stride == 1;
  if (!along_columns && v.row_stride != 1) return false;
  *out = {static_cast<const float*>(v.data),
          v.batch_stride == 0 ? 1 : batch,
          along_columns ? rows : columns,
          along_columns ? columns : rows,
          v.batch_stride,
          along_columns ? v.row_stride : v.column_stride,
          along_columns,
          along_columns == columns_are_k};
  return true;
}

__device__ __forceinline__ float to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

__device__ __forceinline__ void split(float x, float* high, float* low) {
  *high = to_tf32(x);
  // rounding may overflow
  if (isinf(*high)) *high = __uint_as_float(__float_as_uint(x) & 0xffffe000u);
  *low = isinf(x) ? 0.f : to_tf32(x - *high);
}

// Four elements a thread.
__global__ void __launch_bounds__(256)
    split_kernel(const __grid_constant__ Rows rows, float* high, float* low, bool aligned) {
  const int64_t at = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4, pitch = rows.pitch(),
                batch_pitch = rows.batch_pitch();
  if (at >= rows.inner) return;
  for (int64_t line = blockIdx.y; line < rows.lines(); line += gridDim.y) {
    const int64_t batch = line / rows.outer, row = line % rows.outer,
                  to = batch * batch_pitch + row * pitch + at;
    const float* from = rows.data + batch * rows.batch_stride + row * rows.outer_stride + at;
    float x[4] = {}, h[4], l[4];
    if (aligned && at + 4 <= rows.inner)
      *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(from);
    else
      for (int i = 0; i < 4 && at + i < rows.inner; i++) x[i] = from[i];
    for (int i = 0; i < 4; i++) split(x[i], h + i, l + i);
    *reinterpret_cast<float4*>(high + to) = *reinterpret_cast<float4*>(h);
    *reinterpret_cast<float4*>(low + to) = *reinterpret_cast<float4*>(l);
  }
}

struct HighAndLow {
  MatrixView high, low, both;
};

// Writes both copies to *to and advances it.
HighAndLow split_high_low(float** to, const Rows& rows, bool low_first, cudaStream_t stream) {
  float *first = *to, *second = first + rows.second(), *high = low_first ? second : first,
        *low = low_first ? first : second;
  *to = first + round_up(rows.elements(), 64);
  const int64_t lines = rows.lines();
  const dim3 grid(static_cast<unsigned>(ceil_div(rows.inner, 1024)),
                  static_cast<unsigned>(lines < 65535 ? lines : 65535));
  split_kernel<<<grid, 256, 0, stream>>>(rows, high, low, rows.aligned());
  const auto view = [&](float* data) {
    const int64_t step = rows.batch == 1 ? 0 : rows.batch_pitch();
    return rows.along_columns ? MatrixView{data, step, rows.pitch(), 1}
                              : MatrixView{data, step, 1, rows.pitch()};
  };
  return {view(high), view(low), view(first)};
}

// y = alpha a b + beta c for the first a and b, then y += alpha a b, until a product is declined or
// fails.
class Sum {
 public:
  Sum(const MatmulProblem& problem, void* scratch, Stream& stream, const KernelCall& call,
      Status* status)
      : product_(problem), scratch_(scratch), stream_(stream), call_(call), status_(status) {
    product_.precision = Float32Precision::Tf32;
  }

  // At most `most` products of two numbers in one sum.
  void add(const MatrixView& a, const MatrixView& b, int64_t k, int64_t most) {
    for (int64_t done = 0; done < k && outcome_ == lt::Outcome::Done; done += product_.k) {
      product_.k = k - done < most ? k - done : most;
      add_product(a, b, done);
    }
  }

  lt::Outcome outcome() const { return outcome_; }

 private:
  void add_product(const MatrixView& a, const MatrixView& b, int64_t from) {
    product_.a = a;
    product_.b = b;
    product_.a.data = static_cast<float*>(a.data) + from * a.column_stride;
    product_.b.data = static_cast<float*>(b.data) + from * b.row_stride;
    outcome_ = matmul_library(product_, 0, scratch_, stream_, call_, status_);
    if (outcome_ == lt::Outcome::Declined && began_) {
      *status_ = fail(call_.error, Code::Unsupported,
                      "cuBLASLt took the first of several products of TF32, and not the next: use "
                      "the precision 'highest'");
      outcome_ = lt::Outcome::Failed;
    }
    began_ = true;
    product_.c = product_.y;
    product_.beta = 1;
  }

  MatmulProblem product_;
  void* scratch_;
  Stream& stream_;
  const KernelCall& call_;
  Status* status_;
  lt::Outcome outcome_ = lt::Outcome::Done;
  bool began_ = false;
};

}  // namespace

lt::Outcome matmul_tf32x3(const MatmulProblem& p, Stream& stream, const KernelCall& call,
                          Status* status) {
  Rows a, b;
  if (p.dtype != DType::Float32 || stream.facts->major < 8 || lt::state() != lt::State::Ready)
    return lt::Outcome::Declined;
  if (p.m < kShortestSide || p.n < kShortestSide || p.k < kShortestSide)
    return lt::Outcome::Declined;
  if (!rows_of(p.a, p.batch, p.m, p.k, true, &a) || !rows_of(p.b, p.batch, p.k, p.n, false, &b))
    return lt::Outcome::Declined;
  const int64_t bytes = 4 * (round_up(a.elements(), 64) + round_up(b.elements(), 64));
  char* scratch =
      static_cast<char*>(stream.workspace(static_cast<int64_t>(lt::kScratchBytes) + bytes, call));
  if (!scratch) return lt::Outcome::Declined;  // float32 itself needs no scratch memory
  float* to = reinterpret_cast<float*>(scratch + lt::kScratchBytes);
  const HighAndLow x = split_high_low(&to, a, true, stream.handle),
                   y = split_high_low(&to, b, false, stream.handle);
  Sum sum(p, scratch, stream, call, status);
  // otherwise there is padding between the copies
  if (p.k % 4 == 0 || !(a.inner_is_k || b.inner_is_k)) {
    sum.add(x.both, y.both, 2 * p.k, 2 * p.k);
  } else {
    sum.add(x.low, y.high, p.k, p.k);
    sum.add(x.high, y.low, p.k, p.k);
  }
  sum.add(x.high, y.high, p.k, sum_length(p.k));
  return sum.outcome();
}

}  // namespace shardwise::cuda
