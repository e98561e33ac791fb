// Pointwise ops of one operand; pointwise.cuh has the kernels. A file of its own compiles in
// parallel with pointwise_binary.cu.
#include "pointwise.cuh"

namespace shardwise::cuda {

#define SW_POINTWISE(name, arity, classes, result, expression) \
  SW_ARITY_##arity(name, classes, result, expression)
#define SW_ARITY_1(name, classes, result, expression) \
  SW_POINTWISE_OP(name, 1, SW_CLASS_##classes, SW_RESULT_##result, expression)
#define SW_ARITY_2(name, classes, result, expression)
#define SW_ARITY_3(name, classes, result, expression)
#include "../../../generated/pointwise_ops.inc"

}  // namespace shardwise::cuda
