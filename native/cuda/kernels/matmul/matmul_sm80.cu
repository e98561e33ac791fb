// matmul of float16 and bfloat16 on the tensor cores (mma.sync, sm_80 and later), any strides: the
// fallback without cuBLASLt. Math: matmul.cu.
//
// A block of 8 warps computes a 128 x 128 tile of y, each warp 64 x 32 as 4 x 4 fragments of 16 x
// 8, over k in steps of 32 that pass through 4 stages of shared memory (cp.async). An operand tile
// keeps the order of memory: [row][k] if k is contiguous, else [k][row], and ldmatrix with or
// without transposition loads the same fragments of both. Rows of shared memory are padded by 16
// bytes, so that the 8 rows of an ldmatrix use different banks.
// Grid: (tiles in panels of 8 tile rows, so that the blocks running together share operand tiles in
// L2; batch). FLOPs 2 m n k per batch; shared memory 80 KiB.
// Bytes: a n / 128 times and b m / 128 times, from L2 if it holds them; c and y once. Operands that
// are unaligned along their contiguous dim, or have none, are loaded element by element (a second
// instantiation) into the same stages.
// Numerics: products exact, float32 accumulation, k in order by 16; alpha, beta and c in float32,
// one rounding. No split of k: the same bits in every run.
// Technique: pipelined tiles by cp.async and ldmatrix, as CUTLASS's documentation describes them
// for sm_80. On an H200 limited to capability 8.0, bfloat16: 296 TFLOP/s at 4096 cubed (nt: 272),
// 282 at 2048, 292 at 8192, where matmul_sm90.cu has 762, 714 and 693. No other version was timed.
#include "../../primitives/mma.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

constexpr int kTile = 128, kDepth = 32, kStages = 4, kThreads = 256, kPanel = 8;
constexpr int kPitchK = kDepth + 8;   // tile stored [row][k]
constexpr int kPitchRow = kTile + 8;  // tile stored [k][row]
// the larger of the two layouts: 128 x 40 against 32 x 136
constexpr int kTileElements = kTile * kPitchK;
constexpr size_t kSharedBytes = size_t(kStages) * 2 * kTileElements * 2;

// One operand in the layout of its tiles: `inner` is k if AlongK ([row][k]), else the rows
// ([k][row]).
struct Operand {
  const uint16_t* data;
  int64_t batch_stride, outer_stride, inner_stride;
  int32_t outer_size, inner_size;
};

// A thread's two chunks of 8 elements in the tiles of one operand, advanced along k.
template <bool AlongK>
struct Cursor {
  static constexpr int kInner = AlongK ? kDepth : kTile, kPitch = AlongK ? kPitchK : kPitchRow;
  static constexpr int kApart = kThreads / (kInner / 8);
  const uint16_t* from;
  int32_t outer, inner, to;

  __device__ __forceinline__ Cursor(const Operand& o, int64_t batch, int32_t row0) {
    const int t = threadIdx.x;
    outer = t / (kInner / 8);
    inner = t % (kInner / 8) * 8;
    to = outer * kPitch + inner;
    (AlongK ? outer : inner) += row0;
    from = o.data + batch * o.batch_stride + outer * o.outer_stride + inner * o.inner_stride;
  }

  // Copies the chunks of this step into `tile` and advances to the next step. Never reads outside
  // the operand.
  template <bool Vectors>
  __device__ __forceinline__ void fill(uint16_t* tile, const Operand& o) {
    const int left = o.inner_size - inner, count = left >= 8 ? 8 : left > 0 ? left : 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int here = outer + i * kApart < o.outer_size ? count : 0;
      fill_chunk<Vectors>(tile + to + i * kApart * kPitch,
                          here > 0 ? from + i * kApart * o.outer_stride : o.data, here,
                          o.inner_stride);
    }
    from += kDepth * (AlongK ? o.inner_stride : o.outer_stride);
    (AlongK ? inner : outer) += kDepth;
  }
};
static_assert(kTile * kDepth / 8 == 2 * kThreads, "two chunks per thread and operand");

template <class T, bool Vectors, bool AK, bool BK>
__global__ void __launch_bounds__(kThreads, 2)
    mma_kernel(MatmulProblem p, Operand a, Operand b, int32_t tiles_m, int32_t tiles_n) {
  extern __shared__ uint4 shared[];
  const int64_t batch = batch_of_block();
  if (batch >= p.batch) return;
  uint16_t* const a_tiles = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const b_tiles = a_tiles + kStages * kTileElements;

  // Tiles in panels of kPanel tile rows, column by column within a panel.
  const int per_panel = kPanel * tiles_n, panel = blockIdx.x / per_panel,
            in_panel = blockIdx.x % per_panel;
  const int height = tiles_m - panel * kPanel < kPanel ? tiles_m - panel * kPanel : kPanel;
  const int32_t row0 = (panel * kPanel + in_panel % height) * kTile,
                column0 = in_panel / height * kTile;

  const int warp = threadIdx.x >> 5, warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  const int a_lane =
      AK ? warp_row * kPitchK + lane_of_a(kPitchK) : warp_row + lane_of_a_transposed(kPitchRow);
  const int b_lane = BK ? warp_column * kPitchK + lane_of_b(kPitchK)
                        : warp_column + lane_of_b_transposed(kPitchRow);
  constexpr int a_step_row = AK ? 16 * kPitchK : 16, a_step_k = AK ? 16 : 16 * kPitchRow;
  constexpr int b_step_row = BK ? 16 * kPitchK : 16, b_step_k = BK ? 16 : 16 * kPitchRow;
  const uint32_t a_address = shared_address(a_tiles + a_lane),
                 b_address = shared_address(b_tiles + b_lane);
  const int32_t steps = static_cast<int32_t>((p.k + kDepth - 1) / kDepth);

  Cursor<AK> a_next(a, batch, row0);
  Cursor<BK> b_next(b, batch, column0);
  float sums[4][4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;

#pragma unroll
  for (int s = 0; s < kStages - 1; s++) {
    if (s < steps) {
      a_next.template fill<Vectors>(a_tiles + s * kTileElements, a);
      b_next.template fill<Vectors>(b_tiles + s * kTileElements, b);
    }
    copy_async_commit();
  }
#pragma unroll 1
  for (int32_t step = 0; step < steps; step++) {
    copy_async_wait<kStages - 2>();
    // stage `step` has arrived for all warps, and all have read stage `step - 1`
    __syncthreads();
    const int32_t ahead = step + kStages - 1;
    if (ahead < steps) {
      a_next.template fill<Vectors>(a_tiles + ahead % kStages * kTileElements, a);
      b_next.template fill<Vectors>(b_tiles + ahead % kStages * kTileElements, b);
    }
    copy_async_commit();
    const uint32_t stage_bytes = static_cast<uint32_t>(step % kStages) * kTileElements * 2;
#pragma unroll
    for (int kk = 0; kk < kDepth / 16; kk++) {
      uint32_t af[4][4], bf[2][4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint32_t address = a_address + stage_bytes + (i * a_step_row + kk * a_step_k) * 2;
        if (AK)
          load_matrices(af[i], address);
        else
          load_matrices_transposed(af[i], address);
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const uint32_t address = b_address + stage_bytes + (j * b_step_row + kk * b_step_k) * 2;
        if (BK)
          load_matrices(bf[j], address);
        else
          load_matrices_transposed(bf[j], address);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          mma_16816<T>(sums[i][j], af[i], bf[j / 2][j % 2 * 2], bf[j / 2][j % 2 * 2 + 1]);
    }
  }

  const int group = (threadIdx.x & 31) >> 2, pair = (threadIdx.x & 3) * 2;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  T* const y = static_cast<T*>(p.y.data) + batch * p.y.batch_stride;
  const T* const c =
      p.c.data ? static_cast<const T*>(p.c.data) + batch * p.c.batch_stride : nullptr;
  const bool pairs =
      p.y.column_stride == 1 && p.y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y) % 4 == 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int32_t row = row0 + warp_row + i * 16 + half * 8 + group;
      if (row >= p.m) continue;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int32_t column = column0 + warp_column + j * 8 + pair;
        float values[2] = {sums[i][j][half * 2] * alpha, sums[i][j][half * 2 + 1] * alpha};
        if (c) {
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (column + e < p.n)
              values[e] += beta * to_compute<float>(
                                      c[row * p.c.row_stride + (column + e) * p.c.column_stride]);
        }
        if (pairs && column + 1 < p.n) {
          *reinterpret_cast<uint32_t*>(y + row * p.y.row_stride + column) =
              pack_pair<T>(values[0], values[1]);
        } else {
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (column + e < p.n)
              y[row * p.y.row_stride + (column + e) * p.y.column_stride] =
                  from_compute<T>(values[e]);
        }
      }
    }
}

Operand operand_of(const MatrixView& v, int64_t row_stride, int64_t k_stride, int64_t rows,
                   int64_t k, bool along_k) {
  return {static_cast<const uint16_t*>(v.data),     v.batch_stride,
          along_k ? row_stride : k_stride,          along_k ? k_stride : row_stride,
          static_cast<int32_t>(along_k ? rows : k), static_cast<int32_t>(along_k ? k : rows)};
}

bool vectors_of(const Operand& o) {
  return o.inner_stride == 1 && o.outer_stride % 8 == 0 && o.batch_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(o.data) % 16 == 0;
}

template <class T>
void start(const MatmulProblem& p, cudaStream_t stream) {
  bool ak = p.a.column_stride == 1, bk = p.b.row_stride == 1;
  Operand a = operand_of(p.a, p.a.row_stride, p.a.column_stride, p.m, p.k, ak);
  Operand b = operand_of(p.b, p.b.column_stride, p.b.row_stride, p.n, p.k, bk);
  auto kernel = mma_kernel<T, false, true, true>;
  if (vectors_of(a) && vectors_of(b)) {
    kernel = ak ? (bk ? mma_kernel<T, true, true, true> : mma_kernel<T, true, true, false>)
                : (bk ? mma_kernel<T, true, false, true> : mma_kernel<T, true, false, false>);
  } else {
    a = operand_of(p.a, p.a.row_stride, p.a.column_stride, p.m, p.k, true);
    b = operand_of(p.b, p.b.column_stride, p.b.row_stride, p.n, p.k, true);
  }
  const int64_t tiles_m = ceil_div(p.m, kTile), tiles_n = ceil_div(p.n, kTile);
  const dim3 grid = batch_grid(tiles_m * tiles_n, p.batch);
  allow_shared(kernel, kSharedBytes);
  kernel<<<grid, kThreads, kSharedBytes, stream>>>(p, a, b, static_cast<int32_t>(tiles_m),
                                                   static_cast<int32_t>(tiles_n));
}

}  // namespace

void matmul_sm80(const MatmulProblem& p, cudaStream_t stream) {
  if (p.dtype == DType::BFloat16)
    start<bfloat16_t>(p, stream);
  else
    start<half_t>(p, stream);
}

}  // namespace shardwise::cuda
