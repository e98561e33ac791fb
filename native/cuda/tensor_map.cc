#include "tensor_map.h"

#include <cuda_runtime.h>

namespace shardwise::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                       &result) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
}

Encode encoder() {
  static const Encode found = find_encoder();
  return found;
}

}  // namespace

bool tensor_map_fits(const TensorMapShape& s) {
  constexpr int64_t kMaxSize = (int64_t(1) << 31) - 512, kMaxStride = int64_t(1) << 39;
  const auto fits = [](int64_t stride) {
    return stride > 0 && stride % 8 == 0 && stride < kMaxStride / 2;
  };
  return reinterpret_cast<uintptr_t>(s.data) % 16 == 0 && s.width > 0 && s.height > 0 &&
         s.depth > 0 && s.width < kMaxSize && s.height < kMaxSize && s.depth < kMaxSize &&
         (s.height == 1 || fits(s.row_stride)) && (s.depth == 1 || fits(s.depth_stride)) &&
         s.batch < kMaxSize && (s.batch <= 1 || fits(s.batch_stride));
}

bool make_tensor_map(const TensorMapShape& s, int box_width, int box_height, bool bfloat16,
                     CUtensorMap* out) {
  const Encode encode = encoder();
  if (!encode) return false;
  const int64_t row = s.height == 1 ? (s.width + 7) / 8 * 8 : s.row_stride;
  const int64_t plane = s.depth == 1 ? row : s.depth_stride;
  // L2 fetches of 256 bytes help rows that are aligned to them, and cost a sixth for rows that are
  // not.
  const auto promotion =
      row % 128 == 0 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  const int64_t volume = s.batch <= 1 ? plane : s.batch_stride;
  const cuuint64_t sizes[4] = {cuuint64_t(s.width), cuuint64_t(s.height), cuuint64_t(s.depth),
                               cuuint64_t(s.batch)};
  const cuuint64_t strides[3] = {cuuint64_t(row * 2), cuuint64_t(plane * 2),
                                 cuuint64_t(volume * 2)};
  const cuuint32_t box[4] = {cuuint32_t(box_width), cuuint32_t(box_height), 1, 1},
                   steps[4] = {1, 1, 1, 1};
  return encode(out, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                s.batch > 0 ? 4 : 3, const_cast<void*>(s.data), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_width == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, promotion,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace shardwise::cuda
