// cross_entropy and its gradient over logits x[rows, n] with class indices t[rows].
//
// cross_entropy takes (x, t, w) and gives (loss, lse). With a fourth input, a scale of the losses
// (a number, or one element), it also gives the gradient of their sum (g is the scale), from the
// same read of the logits if they are whole aligned vectors. cross_entropy_rows.cu has those
// kernels, and faster ones for such rows without label smoothing.
//
//   lse  = log(sum(exp(x)))
//   loss = (1 - s) w[t] (lse - x[t]) + (s / n) sum_c w[c] (lse - x[c])
//   gx   = g ((1 - s) w[t] (p - onehot(t)) + (s / n) (W p - w)),  p = exp(x - lse), W = sum(w)
//   s: label smoothing; w absent: 1
//
// loss and gradient are 0 if t is ignore_index. Any other t outside [0, n) goes to the error slot.
// cross_entropy_statistics and cross_entropy_backward also take the columns of some of n classes.
// The first gives lse of these columns and their score, (1 - s) w[t] x[t] + (s / n) sum_c w[c] x[c].
//   forward   one read of the logits (two with label smoothing): running maximum and sum of
//             exponentials per thread, merged over a group (part of a warp for short rows, else a
//             block)
//   backward  one read, one write in the dtype of the logits, no float32 copy; a block per chunk of
//             a row, so that long rows and few rows fill the device alike
// Contiguous rows move in 16-byte vectors whatever their alignment (row_tile.cuh), others element
// by element.
// Grid: forward a block of 128 threads for several rows of up to 256 vectors, else one of 256 (up
// to 2048 vectors) or 512 for a row; backward blocks of 32 to 256 threads with four vectors a
// thread, side by side over a row.
// Operations: forward some 4 an element (comparison, difference, exponential, sum), 3 more with
// label smoothing; backward 3 (difference, exponential, product), 2 more.
// Numerics: float32 (float64 for float64), loss and lse in that type, the gradient rounded once;
// losses are relative to the largest logit, and statistics are float64. No atomics, an order of sums
// fixed by shape and alignment. A row of -inf has lse -inf and loss NaN.
// Source: PyTorch's cross_entropy. Technique: loss and gradient without probabilities in memory, as
// in Liger Kernel, arXiv:2410.10989; running maximum and sum of Milakov and Gimelshein,
// arXiv:1805.02867.
// On one H200, bf16 8192 x 128256: loss 815 us, gradient 1574, where cross_entropy_rows.cu takes
// 471 and 1034.
// Versions: cross_entropy_rows.cu, with measurements there; no other version of these kernels was
// timed.
#include "../../../generated/op_params.h"
#include "cross_entropy.cuh"

namespace shardwise::cuda {
namespace {

struct Labels {
  double smoothing;
  int64_t ignore_index;
  int64_t first_class, classes;  // of the first column; of all
  CrossEntropyStatistics statistics;
};

// A vector of n values with any stride and floating dtype; all ones if data is null.
struct ClassWeights {
  const void* data;
  int64_t stride;
  DType dtype;

  template <class C>
  __device__ __forceinline__ C at(int64_t i) const {
    return data ? load_floating<C>(data, i * stride, dtype) : C(1);
  }
};

struct Logits {
  int64_t rows, n, row_stride, step;
  bool vectors;  // step is 1
};

// V logits from element `first` of a row; -inf outside the row.
template <int V, class T>
__device__ __forceinline__ Vec<T, V> load_logits(const T* row, int64_t first, const Logits& shape) {
  const T fill = from_compute<T>(negative_infinity<compute_t<T>>());
  if (shape.vectors) return load_masked<V>(row, first, shape.n, fill);
  Vec<T, V> out;
#pragma unroll
  for (int i = 0; i < V; i++)
    out[i] = first + i >= 0 && first + i < shape.n ? row[(first + i) * shape.step] : fill;
  return out;
}

constexpr int kBatch = 4;  // vectors in flight per thread

template <class T>
__global__ void __launch_bounds__(512)
    cross_entropy_rows(const T* x, Logits shape, const int64_t* target, int64_t target_stride,
                       ClassWeights weights, Labels labels, RowFactor<compute_t<T>> scale,
                       IndexErrorSink errors, compute_t<T>* loss, compute_t<T>* lse,
                       RowGroup group) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<OnlineSum<T>> shared;
  __shared__ RowScratch<C> shared_sum;
  __shared__ RowScratch<double> shared_weights;
  const RowPlace place(group);
  const bool active = place.row < shape.rows;
  const int64_t index = active ? place.row : 0;
  const T* row = x + index * shape.row_stride;
  const int shift = shape.vectors ? row_shift(row) : 0;
  const int64_t last = active ? shape.n : 0;

  OnlineSum<T> total = OnlineSum<T>::empty();
  const int64_t step = int64_t(place.stride) * V;
  for (int64_t first = int64_t(place.slot) * V - shift; first < last; first += kBatch * step) {
    Vec<T, V> raw[kBatch];
#pragma unroll
    for (int c = 0; c < kBatch; c++) raw[c] = load_logits<V>(row, first + c * step, shape);
#pragma unroll
    for (int c = 0; c < kBatch; c++) {
      C values[V];
#pragma unroll
      for (int i = 0; i < V; i++) values[i] = to_compute<C>(raw[c][i]);
      total.add(values);
    }
  }
  total = row_reduce(total, MergeOnlineSums<T>{}, OnlineSum<T>::empty(), group, shared);
  const C base = base_of(total.maximum), rest = row_log(total.sum) + (total.maximum - base);
  const bool scores = labels.statistics.score != nullptr;

  C smooth = C(0);        // sum_c w[c] (lse - x[c]), or w[c] (x[c] - base)
  double weight_sum = 0;  // of the columns, for scores
  if (labels.smoothing != 0) {
    for (int64_t first = int64_t(place.slot) * V - shift; first < last; first += step) {
      const Vec<T, V> raw = load_logits<V>(row, first, shape);
#pragma unroll
      for (int i = 0; i < V; i++) {
        if (first + i < 0 || first + i >= last) continue;
        const C weight = weights.at<C>(labels.first_class + first + i);
        const C above = to_compute<C>(raw[i]) - base;
        smooth += weight * (scores ? above : rest - above);
        if (scores && weights.data) weight_sum += double(weight);
      }
    }
    smooth = row_reduce(smooth, SumOp{}, C(0), group, shared_sum);
    if (scores && weights.data)
      weight_sum = row_reduce(weight_sum, SumOp{}, 0.0, group, shared_weights);
    else
      weight_sum = double(shape.n);
  }
  if (!active || place.slot != 0) return;
  const int64_t t = target[index * target_stride];
  const bool valid = t >= 0 && t < labels.classes, used = valid && t != labels.ignore_index;
  if (!valid && t != labels.ignore_index) errors.report(t, labels.classes, index);
  const int64_t column = t - labels.first_class;
  const bool has = used && column >= 0 && column < shape.n;
  const C picked = has ? to_compute<C>(row[column * shape.step]) : C(0);
  const C weight = used ? weights.at<C>(t) : C(0);
  if (scores) {
    double score = (1 - labels.smoothing) * double(weight) * double(picked);
    if (used && labels.smoothing != 0)
      score +=
          labels.smoothing / double(labels.classes) * (double(smooth) + double(base) * weight_sum);
    labels.statistics.score[index] = score;
    labels.statistics.lse[index] = double(base) + double(rest);
    return;
  }
  C value = used ? weight * (rest - (picked - base)) : C(0);
  if (used && labels.smoothing != 0)
    value = C(1 - labels.smoothing) * value + C(labels.smoothing) / C(labels.classes) * smooth;
  if (lse) lse[index] = base + rest;
  if (loss) loss[index] = scale.of(index) * value;
}

// The sum of all class weights, for the gradient with label smoothing. One block.
template <class C>
__global__ void __launch_bounds__(1024) sum_weights(ClassWeights weights, int64_t n, C* out) {
  __shared__ C shared[32];
  C total = C(0);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) total += weights.at<C>(i);
  total = block_reduce(total, SumOp{}, C(0), shared);
  if (threadIdx.x == 0) *out = total;
}

template <class T>
__global__ void __launch_bounds__(256)
    cross_entropy_gradient(const T* x, Logits shape, RowFactor<compute_t<T>> factors,
                           const void* lse, int64_t lse_stride, DType lse_dtype,
                           const int64_t* target, int64_t target_stride, ClassWeights weights,
                           const compute_t<T>* weight_sum, Labels labels, IndexErrorSink errors,
                           T* gx, uint32_t blocks_per_row, bool out_vectors) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  const int64_t index = blockIdx.x / blocks_per_row, block = blockIdx.x % blocks_per_row;
  const T* row = x + index * shape.row_stride;
  T* to = gx + index * shape.n;
  const int shift = shape.vectors ? row_shift(row) : 0;
  const int64_t block_first = block * kBatch * blockDim.x * V - shift;
  auto first_of = [&](int c) { return block_first + int64_t(c * blockDim.x + threadIdx.x) * V; };
  Vec<T, V> raw[kBatch];
#pragma unroll
  for (int c = 0; c < kBatch; c++) raw[c] = load_logits<V>(row, first_of(c), shape);

  const int64_t t = target[index * target_stride];
  const bool valid = t >= 0 && t < labels.classes, used = valid && t != labels.ignore_index;
  if (!valid && t != labels.ignore_index && block == 0 && threadIdx.x == 0)
    errors.report(t, labels.classes, index);
  const int64_t column = t - labels.first_class;
  const C log_sum = load_floating<C>(lse, index * lse_stride, lse_dtype);
  const C scale = used ? factors.of(index) : C(0);
  const C amount = C(labels.smoothing), share = amount / C(labels.classes);
  const C hit = used ? (C(1) - amount) * weights.at<C>(t) * scale : C(0);
  const C spread = used && labels.smoothing != 0 ? share * scale : C(0);
  const C sum = spread != C(0) && weights.data ? *weight_sum : C(labels.classes);
  const C all = hit + spread * sum;
#pragma unroll
  for (int c = 0; c < kBatch; c++) {
    const int64_t first = first_of(c);
    if (first >= shape.n) return;
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) {
      C d = all * row_exp<T>(to_compute<C>(raw[c][i]) - log_sum);
      if (first + i == column) d -= hit;
      if (spread != C(0) && first + i >= 0 && first + i < shape.n)
        d -= spread * weights.at<C>(labels.first_class + first + i);
      out[i] = from_compute<T>(used ? d : C(0));
    }
    store_masked<V>(to, first, shape.n, out, out_vectors);
  }
}

Logits logits_of(const TensorView& x) {
  Logits shape{x.sizes[0], x.sizes[1], x.strides[0], x.strides[1], false};
  shape.vectors = shape.step == 1 || shape.n == 1;
  return shape;
}

ClassWeights weights_of(const TensorView& w) {
  if (w.is_immediate) return {nullptr, 1, DType::Float32};
  return {w.data, w.strides[0], w.dtype};
}

Labels labels_of(const CrossEntropyRows& r, double smoothing) {
  return {smoothing, r.ignore_index, r.first_class, r.classes, CrossEntropyStatistics(r)};
}

template <class C>
C* output_of(const TensorView& view) {
  return view.is_immediate ? nullptr : static_cast<C*>(view.data);
}

Status too_many_rows(const KernelCall& call) {
  return fail(call.error, Code::Unsupported, "cross_entropy of 2^31 rows or more");
}

// The gradient from lse.
Status gradient(const KernelCall& call, const CrossEntropyRows& r, double label_smoothing) {
  const TensorView &x = *r.x, &lse = *r.lse, &target = *r.target, &weight = *r.weight, &gx = *r.gx;
  const Logits shape = logits_of(x);
  if (x.numel == 0) return kOk;
  if (label_smoothing == 0 && cross_entropy_gradient_rows(call, r)) return launched(call);
  Stream& stream = stream_of(call);
  const ClassWeights weights = weights_of(weight);
  Status status = kOk;
  const bool found = dispatch_floating(x.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    using C = compute_t<T>;
    constexpr int V = kVec16<T>;
    C* weight_sum = nullptr;
    if (weights.data && label_smoothing != 0) {
      weight_sum = static_cast<C*>(stream.workspace(sizeof(C), call));
      if (!weight_sum) {
        status = Status{Code::OutOfMemory};
        return;
      }
      sum_weights<C><<<1, 1024, 0, stream.handle>>>(weights, r.classes, weight_sum);
    }
    const T* from = static_cast<const T*>(x.data);
    T* to = static_cast<T*>(gx.data);
    const bool out_vectors =
        shape.vectors && (shape.row_stride - shape.n) % V == 0 &&
        (reinterpret_cast<uintptr_t>(from) - reinterpret_cast<uintptr_t>(to)) % 16 == 0;
    const int64_t vectors = ceil_div(shape.n + V - 1, V);
    int32_t threads = 32;
    while (threads < 256 && threads * kBatch < vectors) threads *= 2;
    const int64_t blocks_per_row = ceil_div(vectors, threads * kBatch);
    if (blocks_per_row * shape.rows >= (int64_t(1) << 31)) {
      status = too_many_rows(call);
      return;
    }
    cross_entropy_gradient<T><<<blocks_per_row * shape.rows, threads, 0, stream.handle>>>(
        from, shape, RowFactor<C>(r), lse.data, lse.strides[0], lse.dtype,
        static_cast<const int64_t*>(target.data), target.strides[0], weights, weight_sum,
        labels_of(r, label_smoothing), stream.index_errors(call), to,
        static_cast<uint32_t>(blocks_per_row), out_vectors);
  });
  if (!found) return unsupported(call, x.dtype);
  return status.ok() ? launched(call) : status;
}

// Losses, or scores, and lse.
Status forward(const KernelCall& call, const CrossEntropyRows& r, double label_smoothing) {
  if (label_smoothing == 0 && cross_entropy_loss_rows(call, r)) return launched(call);
  const Logits shape = logits_of(*r.x);
  Stream& stream = stream_of(call);
  const bool found = dispatch_floating(r.x->dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    using C = compute_t<T>;
    const int64_t vectors = ceil_div(shape.n, kVec16<T>);
    RowPlan plan;
    plan.group.lanes = 1;
    while (plan.group.lanes < 32 && plan.group.lanes * 4 < vectors) plan.group.lanes *= 2;
    plan.threads = vectors <= 256 ? 128 : vectors <= 2048 ? 256 : 512;
    if (vectors > 256) plan.group.lanes = plan.threads;  // the whole block
    plan.blocks =
        vectors > 256 ? shape.rows : ceil_div(shape.rows, plan.threads / plan.group.lanes);
    launch_rows(cross_entropy_rows<T>, plan, stream.handle, static_cast<const T*>(r.x->data), shape,
                static_cast<const int64_t*>(r.target->data), r.target->strides[0],
                weights_of(*r.weight), labels_of(r, label_smoothing), RowFactor<C>(r),
                stream.index_errors(call), r.scores ? nullptr : output_of<C>(*r.loss),
                r.scores ? nullptr : output_of<C>(*r.lse), plan.group);
  });
  return found ? launched(call) : unsupported(call, r.x->dtype);
}

}  // namespace

Status cross_entropy(const KernelCall& call) {
  const TensorView& x = call.input(0);
  const auto& params = call.params_as<CrossEntropyParams>();
  if (x.sizes[0] == 0) return kOk;
  if (x.sizes[0] >= (int64_t(1) << 31)) return too_many_rows(call);
  CrossEntropyRows r = {
      &x,     &call.input(1), &call.input(2),  static_cast<int64_t>(params.ignore_index),
      0,      x.sizes[1],     &call.output(0), &call.output(1),
      nullptr};
  const bool both = call.num_inputs > 3 && call.num_outputs > 2 && !call.output(2).is_immediate;
  if (!both) return forward(call, r, params.label_smoothing);
  r.g = &call.input(3);
  r.g_stride = r.g->is_immediate || r.g->numel == 1 ? 0 : r.g->strides[0];
  r.gx = &call.output(2);
  if (params.label_smoothing == 0 && cross_entropy_both_rows(call, r)) return launched(call);
  if (r.lse->is_immediate)
    return fail(call.error, Code::Invalid,
                "cross_entropy: a gradient needs the log of the sums as an output");
  const Status status = forward(call, r, params.label_smoothing);
  return status.ok() ? gradient(call, r, params.label_smoothing) : status;
}

Status cross_entropy_statistics(const KernelCall& call) {
  const TensorView& x = call.input(0);
  const auto& params = call.params_as<CrossEntropyStatisticsParams>();
  if (x.sizes[0] == 0) return kOk;
  if (x.sizes[0] >= (int64_t(1) << 31)) return too_many_rows(call);
  CrossEntropyRows r = {&x,
                        &call.input(1),
                        &call.input(2),
                        static_cast<int64_t>(params.ignore_index),
                        static_cast<int64_t>(params.first_class),
                        static_cast<int64_t>(params.classes),
                        &call.output(1),
                        &call.output(0),
                        nullptr};
  r.scores = true;
  return forward(call, r, params.label_smoothing);
}

Status cross_entropy_backward(const KernelCall& call) {
  const auto& params = call.params_as<CrossEntropyBackwardParams>();
  const TensorView &g = call.input(0), &x = call.input(1), &lse = call.input(2),
                   &target = call.input(3), &weight = call.input(4);
  return gradient(call,
                  {&x, &target, &weight, static_cast<int64_t>(params.ignore_index),
                   static_cast<int64_t>(params.first_class), static_cast<int64_t>(params.classes),
                   nullptr, &lse, &call.output(0), &g, g.strides[0]},
                  params.label_smoothing);
}

}  // namespace shardwise::cuda
