// What the launches of matmul's sm_90 kernels have in common.
#pragma once
#include "../tensor_map.h"
#include "matmul.h"

namespace shardwise::cuda {

// An operand as the copy engine sees it: `width` along its contiguous dim, which is that of its columns, or `across` them.
inline TensorMapShape operand_shape(const MatmulProblem& p, const MatrixView& v, int64_t width, int64_t height, bool across) {
  TensorMapShape s;
  s.data = v.data;
  s.width = width;
  s.height = height;
  s.row_stride = across ? v.column_stride : v.row_stride;
  s.depth = p.batch > 1 && v.batch_stride != 0 ? p.batch : 1;
  s.depth_stride = v.batch_stride;
  return s;
}

struct LaunchShape {
  int64_t blocks;
  int threads;
  size_t shared;
  int cluster;  // blocks; 0: none
};

// Starts a kernel while the one before it ends: it waits for that itself.
template <class... Params, class... Args>
void launch_overlapped(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 0 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace shardwise::cuda
