// One function per pointwise kernel; each calls the engine of the machine's instruction set.
#include "../isa.h"
#include "pointwise_table.h"

namespace shardwise::cpu {

const PointwiseTable& pointwise_table() {
  static const PointwiseTable& table = []() -> const PointwiseTable& {
#if defined(__x86_64__)
    switch (cpu_features().isa) {
      case Isa::Avx512:
        return avx512::pointwise_table;
      case Isa::Avx2:
        return avx2::pointwise_table;
      default:
        break;
    }
#endif
    return baseline::pointwise_table;
  }();
  return table;
}

static __attribute__((noinline)) Status report(const KernelCall& call, Code code,
                                               const char* name) {
  if (code == Code::Invalid)
    return fail(call.error, code, "ZeroDivisionError: %s of integers by zero", name);
  return fail(call.error, code, "%s has no CPU kernel for %s", name,
              dtype_name(call.output(0).dtype));
}

static inline Status launch(const KernelCall& call, PointwiseOp op, const char* name) {
  const Code code = pointwise_table().run(call, op);
  return code == Code::Ok ? kOk : report(call, code, name);
}

#define SW_POINTWISE(name, arity, classes, result, expression) \
  Status name(const KernelCall& call) { return launch(call, PointwiseOp::name, #name); }
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE

}  // namespace shardwise::cpu
