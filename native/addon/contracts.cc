#include "contracts.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace shardwise {

namespace {

using View = TensorView;

bool same(const View& a, const View& b) {
  if (a.is_immediate || b.is_immediate || a.ndim != b.ndim) return false;
  for (int32_t d = 0; d < a.ndim; d++)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

bool shaped(const View& v, std::initializer_list<int64_t> sizes) {
  if (v.is_immediate || v.ndim != static_cast<int32_t>(sizes.size())) return false;
  int32_t d = 0;
  for (int64_t size : sizes)
    if (v.sizes[d++] != size) return false;
  return true;
}

bool holds(const View& v, int64_t numel) { return !v.is_immediate && v.numel == numel; }
bool absent_or_holds(const View& v, int64_t numel) { return v.is_immediate || v.numel == numel; }
bool rank(const View& v, int32_t ndim) { return !v.is_immediate && v.ndim == ndim; }
bool floats(const View& v) { return is_floating(v.dtype); }
bool dense(const View& v) { return !v.is_immediate && (v.numel == 0 || v.is_contiguous()); }

// A parameter that counts something, or -1 where it cannot.
int64_t count_of(double value, int64_t most) {
  return value >= 0 && value <= static_cast<double>(most) && std::trunc(value) == value
             ? static_cast<int64_t>(value)
             : -1;
}

int64_t width_of(const View& v, int32_t from) {
  int64_t n = 1;
  for (int32_t d = from; d < v.ndim; d++) n *= v.sizes[d];
  return n;
}

// All dims but the last of `a` are at most those of `b`.
bool covered(const View& a, const View& b) {
  if (a.is_immediate || b.is_immediate || a.ndim != b.ndim) return false;
  for (int32_t d = 0; d + 1 < a.ndim; d++)
    if (a.sizes[d] > b.sizes[d]) return false;
  return true;
}

bool pointwise(const KernelCall& c) {
  const View& out = c.output(0);
  if (out.is_immediate || count_of(c.params[0], 2) < 0) return false;
  for (int32_t i = 0; i < c.num_inputs; i++)
    if (!c.input(i).is_immediate && !same(c.input(i), out)) return false;
  return true;
}

bool copy(const KernelCall& c) { return same(c.input(0), c.output(0)); }
bool fill(const KernelCall& c) { return !c.output(0).is_immediate; }
bool range(const KernelCall& c) { return !c.output(0).is_immediate && c.output(0).ndim <= 1; }
bool tri(const KernelCall& c) {
  return same(c.input(0), c.output(0)) && c.input(0).ndim >= 2 && c.output(0).is_contiguous();
}

// The index view is an immediate with a layout.
bool indexed_like(const View& index, const View& v) {
  View as_tensor = index;
  as_tensor.is_immediate = false;
  return index.is_immediate && same(as_tensor, v);
}
bool random(const KernelCall& c) { return indexed_like(c.input(0), c.output(0)); }
bool dropout(const KernelCall& c) {
  const View &x = c.input(0), &mask = c.output(1);
  return indexed_like(c.input(1), x) && same(x, c.output(0)) && same(x, mask) &&
         mask.dtype == DType::Bool;
}

bool reduction(const KernelCall& c) {
  const View& x = c.input(0);
  const int64_t reduced = count_of(c.params[0], x.ndim);
  if (x.is_immediate || reduced < 0) return false;
  int64_t outer = 1;
  for (int32_t d = 0; d < x.ndim - reduced; d++) outer *= x.sizes[d];
  for (int32_t i = 0; i < c.num_outputs; i++)
    if (!holds(c.output(i), outer)) return false;
  return true;
}
bool float_reduction(const KernelCall& c) { return reduction(c) && floats(c.input(0)); }

bool rows(const KernelCall& c) {
  for (int32_t i = 0; i < c.num_inputs; i++)
    if (!same(c.input(i), c.output(0))) return false;
  return c.output(0).ndim >= 1;
}
bool sort(const KernelCall& c) { return rows(c) && same(c.output(0), c.output(1)); }
bool topk(const KernelCall& c) {
  const View &x = c.input(0), &values = c.output(0);
  if (x.is_immediate || x.ndim < 1) return false;
  const int32_t last = x.ndim - 1;
  const int64_t k = count_of(c.params[0], x.sizes[last]);
  if (k < 0 || !same(values, c.output(1)) || values.ndim != x.ndim || values.sizes[last] != k)
    return false;
  return covered(x, values) && covered(values, x);
}

bool layer_norm(const KernelCall& c) {
  const View& x = c.input(0);
  if (!rank(x, 2) || !same(x, c.output(0)) || !floats(x)) return false;
  return absent_or_holds(c.input(1), x.sizes[1]) && absent_or_holds(c.input(2), x.sizes[1]) &&
         holds(c.output(1), x.sizes[0]) && holds(c.output(2), x.sizes[0]);
}
bool layer_norm_backward(const KernelCall& c) {
  const View &x = c.input(1), &gx = c.output(0);
  if (!rank(x, 2) || !same(c.input(0), x) || !(gx.is_immediate || same(gx, x))) return false;
  return holds(c.input(2), x.sizes[0]) && holds(c.input(3), x.sizes[0]) &&
         absent_or_holds(c.input(4), x.sizes[1]) && absent_or_holds(c.output(1), x.sizes[1]) &&
         absent_or_holds(c.output(2), x.sizes[1]);
}
bool rms_norm(const KernelCall& c) {
  const View& x = c.input(0);
  if (!rank(x, 2) || !same(x, c.output(0))) return false;
  return absent_or_holds(c.input(1), x.sizes[1]) && holds(c.output(1), x.sizes[0]);
}
bool rms_norm_backward(const KernelCall& c) {
  const View &x = c.input(1), &gx = c.output(0);
  if (!rank(x, 2) || !same(c.input(0), x) || !(gx.is_immediate || same(gx, x))) return false;
  return holds(c.input(2), x.sizes[0]) && absent_or_holds(c.input(3), x.sizes[1]) &&
         absent_or_holds(c.output(1), x.sizes[1]);
}
bool add_rms_norm(const KernelCall& c) {
  const View &x = c.input(0), &residual = c.input(1), &sum = c.output(1);
  if (!rank(x, 2) || !floats(x) || !same(x, residual) || !same(x, c.output(0)) || !same(x, sum))
    return false;
  if (residual.dtype != x.dtype || c.output(0).dtype != x.dtype || sum.dtype != x.dtype)
    return false;
  return absent_or_holds(c.input(2), x.sizes[1]) && holds(c.output(2), x.sizes[0]);
}
bool add_rms_norm_backward(const KernelCall& c) {
  const View &x = c.input(1), &more = c.input(4), &gx = c.output(0);
  if (!rank(x, 2) || !floats(x) || !same(c.input(0), x) || !same(gx, x)) return false;
  if (gx.dtype != x.dtype || c.input(0).dtype != x.dtype) return false;
  if (!more.is_immediate && (!same(more, x) || more.dtype != x.dtype)) return false;
  return holds(c.input(2), x.sizes[0]) && absent_or_holds(c.input(3), x.sizes[1]) &&
         absent_or_holds(c.output(1), x.sizes[1]);
}

// In two forms: of the losses, and with a scale behind the inputs and the gradient behind the
// outputs.
bool cross_entropy(const KernelCall& c) {
  const bool with_gradient = c.num_inputs == 4 && c.num_outputs == 3;
  if (!with_gradient && !(c.num_inputs == 3 && c.num_outputs == 2)) return false;
  const View& x = c.input(0);
  if (!rank(x, 2) || !floats(x)) return false;
  const DType exact = x.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  if (with_gradient && !c.input(3).is_immediate &&
      (c.input(3).dtype != exact || c.input(3).numel != 1))
    return false;
  if (with_gradient &&
      (!same(x, c.output(2)) || c.output(2).dtype != x.dtype || !dense(c.output(2))))
    return false;
  return holds(c.input(1), x.sizes[0]) && absent_or_holds(c.input(2), x.sizes[1]) &&
         holds(c.output(0), x.sizes[0]) && holds(c.output(1), x.sizes[0]);
}
bool scale_rows(const KernelCall& c) {
  const View &factors = c.input(0), &y = c.output(0);
  return rank(y, 2) && floats(y) && dense(y) && rank(factors, 1) && floats(factors) &&
         factors.numel == y.sizes[0];
}
bool cross_entropy_backward(const KernelCall& c) {
  const View& x = c.input(1);
  if (!rank(x, 2) || !same(x, c.output(0))) return false;
  return holds(c.input(0), x.sizes[0]) && holds(c.input(2), x.sizes[0]) &&
         holds(c.input(3), x.sizes[0]) && absent_or_holds(c.input(4), x.sizes[1]);
}

bool index_select(const KernelCall& c) {
  const View &x = c.input(0), &y = c.output(0);
  if (!rank(x, 3) || !rank(y, 3) || x.dtype != y.dtype) return false;
  return x.sizes[0] == y.sizes[0] && x.sizes[2] == y.sizes[2] && holds(c.input(1), y.sizes[1]);
}
bool index_add(const KernelCall& c) {
  const View &source = c.input(1), &y = c.output(0);
  if (!rank(source, 3) || !rank(y, 3)) return false;
  return source.sizes[0] == y.sizes[0] && source.sizes[2] == y.sizes[2] &&
         holds(c.input(0), source.sizes[1]);
}
bool gather(const KernelCall& c) {
  return same(c.input(1), c.output(0)) && covered(c.input(1), c.input(0)) &&
         c.input(0).dtype == c.output(0).dtype;
}
bool scatter(const KernelCall& c) {
  const View &index = c.input(0), &source = c.input(1);
  return (source.is_immediate || same(source, index)) && covered(index, c.output(0)) &&
         count_of(c.params[0], 4) >= 0;
}

// `indices` tensors of one size from input 1 on, for the first dims of `indexed`; `values` holds a
// slice for each position.
bool by_indices(const KernelCall& c, const View& indexed, const View& values) {
  const int64_t count = indexed.is_immediate ? -1 : count_of(c.params[0], indexed.ndim);
  if (count < 1 || c.num_inputs != 1 + count) return false;
  const int64_t positions = c.input(1).numel;
  for (int32_t i = 1; i < c.num_inputs; i++)
    if (!holds(c.input(i), positions)) return false;
  const double elements = static_cast<double>(positions) *
                          static_cast<double>(width_of(indexed, static_cast<int32_t>(count)));
  return !values.is_immediate && static_cast<double>(values.numel) == elements;
}
bool index_get(const KernelCall& c) { return by_indices(c, c.input(0), c.output(0)); }
bool index_put(const KernelCall& c) { return by_indices(c, c.output(0), c.input(0)); }

// A start for each tile of `numel` elements and one behind the last, and a word of flags for each
// 64: tiles end where words do.
bool tiled(const View& starts, const View& flags, int64_t numel, double param) {
  const int64_t tile = count_of(param, int64_t(1) << 52);
  if (tile < 64 || tile % 64 != 0 || !dense(starts) || !dense(flags)) return false;
  if (starts.dtype != DType::Int64 || flags.dtype != DType::Int64) return false;
  return holds(starts, numel / tile + (numel % tile != 0) + 1) &&
         holds(flags, numel / 64 + (numel % 64 != 0));
}
bool nonzero(const KernelCall& c) {
  return !c.input(0).is_immediate && tiled(c.output(0), c.output(1), c.input(0).numel, c.params[0]);
}
// The shape of what was looked at is an index view.
bool nonzero_rows(const KernelCall& c) {
  const View &shape = c.input(0), &rows = c.output(0);
  if (!shape.is_immediate || !rank(rows, 2) || rows.sizes[1] != shape.ndim || !dense(rows) ||
      rows.dtype != DType::Int64)
    return false;
  return tiled(c.input(1), c.input(2), shape.numel, c.params[0]);
}

bool matmul(const KernelCall& c) {
  const View &a = c.input(0), &b = c.input(1), &addend = c.input(2), &y = c.output(0);
  if (!rank(a, 3) || !rank(b, 3) || !rank(y, 3) || a.dtype != y.dtype || b.dtype != y.dtype)
    return false;
  const int64_t batch = y.sizes[0], k = a.sizes[2];
  return shaped(a, {batch, y.sizes[1], k}) && shaped(b, {batch, k, y.sizes[2]}) &&
         (addend.is_immediate || (same(addend, y) && addend.dtype == y.dtype));
}

bool attends(const View& q, const View& k, const View& v, const View& mask) {
  if (!rank(q, 4) || !rank(k, 4) || !rank(v, 4) || !floats(q) || q.dtype != k.dtype ||
      q.dtype != v.dtype)
    return false;
  const int64_t batch = q.sizes[0], heads = q.sizes[1], key_heads = k.sizes[1], keys = k.sizes[2];
  if (!shaped(k, {batch, key_heads, keys, q.sizes[3]}) ||
      !shaped(v, {batch, key_heads, keys, v.sizes[3]}))
    return false;
  if (key_heads == 0 ? heads != 0 : heads % key_heads != 0) return false;
  return mask.is_immediate || (shaped(mask, {batch, heads, q.sizes[2], keys}) &&
                               (floats(mask) || mask.dtype == DType::Bool));
}
bool attention(const KernelCall& c) {
  const View &q = c.input(0), &v = c.input(2), &out = c.output(0);
  return attends(q, c.input(1), v, c.input(3)) &&
         shaped(out, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]}) && out.dtype == q.dtype &&
         shaped(c.output(1), {q.sizes[0], q.sizes[1], q.sizes[2]});
}
bool attention_backward(const KernelCall& c) {
  const View &g = c.input(0), &q = c.input(1), &k = c.input(2), &v = c.input(3), &out = c.input(5);
  if (!attends(q, k, v, c.input(4)) ||
      !shaped(out, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]}))
    return false;
  const View& lse = c.input(6);
  if (!same(g, out) || !floats(g) || !floats(out) ||
      !shaped(lse, {q.sizes[0], q.sizes[1], q.sizes[2]}))
    return false;
  // As the forward pass made them: kernels go by no strides of these.
  const auto is_dense = [](const View& t) { return t.numel == 0 || t.is_contiguous(); };
  if (!is_dense(out) || !is_dense(lse) ||
      lse.dtype != (q.dtype == DType::Float64 ? DType::Float64 : DType::Float32))
    return false;
  for (int32_t i = 0; i < 3; i++)
    if (!same(c.output(i), c.input(1 + i)) || !floats(c.output(i))) return false;
  return true;
}

// `groups` lists of params[0] tensors each; those of group `optional` may be absent. The same place
// in every list has the same number of elements, and what is written has memory of its own for
// each.
bool lists(const KernelCall& c, int32_t groups, int32_t optional) {
  const int64_t count = count_of(c.params[0], c.num_inputs);
  if (count < 0 || count * groups != c.num_inputs) return false;
  for (int32_t i = 0; i < c.num_inputs; i++) {
    const View& v = c.input(i);
    const bool fits = i / count == optional ? absent_or_holds(v, c.input(i % count).numel)
                                            : holds(v, c.input(i % count).numel);
    if (!fits) return false;
  }
  return true;
}
bool sgd_step(const KernelCall& c) { return lists(c, 3, 2); }
bool adam_step(const KernelCall& c) { return lists(c, 5, 4); }
bool foreach_add(const KernelCall& c) { return lists(c, 2, -1); }
bool foreach_mul(const KernelCall& c) { return lists(c, 1, -1); }
bool foreach_norm(const KernelCall& c) {
  return lists(c, 1, -1) && holds(c.output(0), c.num_inputs);
}

struct Contract {
  const char* kernel;
  int32_t inputs, outputs;  // -1: the rule counts
  bool (*fits)(const KernelCall&);
};

constexpr Contract kContracts[] = {
    {"copy", 1, 1, copy},
    {"fill", 0, 1, fill},
    {"arange", 0, 1, range},
    {"linspace", 0, 1, range},
    {"tri", 1, 1, tri},
    {"random_uniform", 1, 1, random},
    {"random_normal", 1, 1, random},
    {"random_integer", 1, 1, random},
    {"random_bernoulli", 1, 1, random},
    {"dropout", 2, 2, dropout},
    {"reduce_sum", 1, 1, reduction},
    {"reduce_mean", 1, 1, reduction},
    {"reduce_prod", 1, 1, reduction},
    {"reduce_amax", 1, 1, reduction},
    {"reduce_amin", 1, 1, reduction},
    {"reduce_any", 1, 1, reduction},
    {"reduce_all", 1, 1, reduction},
    {"reduce_argmax", 1, 1, reduction},
    {"reduce_argmin", 1, 1, reduction},
    {"reduce_var", 1, 2, float_reduction},
    {"reduce_norm", 1, 1, float_reduction},
    {"reduce_logsumexp", 1, 1, float_reduction},
    {"cumsum", 1, 1, rows},
    {"cumprod", 1, 1, rows},
    {"softmax", 1, 1, rows},
    {"log_softmax", 1, 1, rows},
    {"softmax_backward", 2, 1, rows},
    {"log_softmax_backward", 2, 1, rows},
    {"sort", 1, 2, sort},
    {"topk", 1, 2, topk},
    {"layer_norm", 3, 3, layer_norm},
    {"layer_norm_backward", 5, 3, layer_norm_backward},
    {"rms_norm", 2, 2, rms_norm},
    {"rms_norm_backward", 4, 2, rms_norm_backward},
    {"add_rms_norm", 3, 3, add_rms_norm},
    {"add_rms_norm_backward", 5, 2, add_rms_norm_backward},
    {"cross_entropy", -1, -1, cross_entropy},
    {"cross_entropy_backward", 5, 1, cross_entropy_backward},
    {"scale_rows", 1, 1, scale_rows},
    {"index_select", 2, 1, index_select},
    {"index_add", 2, 1, index_add},
    {"gather", 2, 1, gather},
    {"scatter", 2, 1, scatter},
    {"index_get", -1, 1, index_get},
    {"index_put", -1, 1, index_put},
    {"nonzero", 1, 2, nonzero},
    {"nonzero_rows", 3, 1, nonzero_rows},
    {"matmul", 3, 1, matmul},
    {"attention", 4, 2, attention},
    {"attention_backward", 7, 3, attention_backward},
    {"sgd_step", -1, 0, sgd_step},
    {"adam_step", -1, 0, adam_step},
    {"foreach_add", -1, 0, foreach_add},
    {"foreach_mul", -1, 0, foreach_mul},
    {"foreach_norm", -1, 1, foreach_norm},
#define SW_POINTWISE(name, arity, classes, result, expression) {#name, arity, 1, pointwise},
#include "../generated/pointwise_ops.inc"
#undef SW_POINTWISE
};

// By kernel id, in the order of the generated table; null where a kernel was added without a
// contract.
const std::vector<const Contract*>& contracts() {
  static const auto* table = [] {
    auto* found = new std::vector<const Contract*>;
#define SW_KERNEL(id, name)               \
  found->push_back(nullptr);              \
  for (const Contract& each : kContracts) \
    if (!std::strcmp(each.kernel, #name)) found->back() = &each;
#include "../generated/kernel_table.def"
#undef SW_KERNEL
    return found;
  }();
  return *table;
}

}  // namespace

Status check_contract(const KernelCall& call, const KernelEntry* kernels, ErrorText* error) {
  const Contract* contract = contracts()[call.kernel];
  if (!contract)
    return fail(error, Code::Unsupported, "%s has no contract in native/addon/contracts.cc",
                kernels[call.kernel].name);
  const auto counts = [](int32_t wanted, int32_t given) { return wanted < 0 || wanted == given; };
  const bool counted =
      counts(contract->inputs, call.num_inputs) && counts(contract->outputs, call.num_outputs);
  if (counted && contract->fits(call)) return kOk;
  return fail(error, Code::Invalid,
              "malformed command: %d inputs and %d outputs of these sizes and dtypes do not fit "
              "the kernel %s",
              call.num_inputs, call.num_outputs, kernels[call.kernel].name);
}

}  // namespace shardwise
