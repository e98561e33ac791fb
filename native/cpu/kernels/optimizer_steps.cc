// One SGD or Adam step over many tensors: the threads share the chunks of all tensors. The order of
// operations is that of PyTorch's single-tensor implementations.
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

constexpr int64_t kChunk = 4096;

struct Chunk {
  int32_t tensor;
  int64_t begin, count;
};

// The chunks of `count` inputs, the first of which is number `from`.
std::vector<Chunk> chunks_of(const KernelCall& call, int32_t from, int32_t count) {
  std::vector<Chunk> chunks;
  for (int32_t i = 0; i < count; i++) {
    const int64_t numel = call.input(from + i).numel;
    for (int64_t at = 0; at < numel; at += kChunk)
      chunks.push_back({i, at, numel - at < kChunk ? numel - at : kChunk});
  }
  return chunks;
}

// Calls body(k, chunks[k]) for all chunks, at least `grain` of them on each thread.
template <class Body>
void for_each_chunk(const std::vector<Chunk>& chunks, int64_t grain, Body&& body) {
  parallel_for(static_cast<int64_t>(chunks.size()), grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k++) body(k, chunks[k]);
  });
}

// The elements of a chunk in the compute type: the tensor's memory, or a buffer that store() writes
// back.
template <class T>
struct Elements {
  const TensorView& view;
  const Chunk& chunk;
  T* data;
  bool in_place;
  Elements(const TensorView& v, const Chunk& c, T* buffer) : view(v), chunk(c) {
    in_place = v.dtype == dtype_of<T>() && v.is_contiguous();
    data = in_place ? static_cast<T*>(v.data) + c.begin : buffer;
    if (!in_place) gather(v, c.begin, c.count, buffer);
  }
  void store() {
    if (!in_place) scatter(view, chunk.begin, chunk.count, data);
  }
};

struct Adam {
  double lr, beta1, beta2, eps, weight_decay, step_size, root2, grad_scale;
  bool decoupled, maximize;
};

// `largest`: the maxima of the second moments (AMSGrad), which other steps do not read. Without
// __restrict the compiler would compare each pair of rows, which are too many for it, and compute
// one element at a time.
template <bool kAmsgrad, class T>
inline __attribute__((always_inline)) void adam(const Adam& a, T* __restrict p,
                                                const T* __restrict g, T* __restrict m1,
                                                T* __restrict m2, T* __restrict largest,
                                                int64_t n) {
  const T beta2 = T(a.beta2), eps = T(a.eps), decay = T(a.weight_decay), step = T(a.step_size);
  const T root2 = T(a.root2), scale = T(a.maximize ? -a.grad_scale : a.grad_scale);
  const T keep = T(1 - a.lr * a.weight_decay), rest1 = T(1 - a.beta1), rest2 = T(1 - a.beta2);
  const bool coupled = !a.decoupled && a.weight_decay != 0,
             decoupled = a.decoupled && a.weight_decay != 0;
  for (int64_t i = 0; i < n; i++) {
    T grad = g[i] * scale;
    const T param = decoupled ? p[i] * keep : p[i];
    grad = coupled ? grad + decay * param : grad;
    // exact at both ends: with beta1 = 0 the gradient itself
    const T first = m::lerp(m1[i], grad, rest1);
    const T second = m2[i] * beta2 + rest2 * grad * grad;
    m1[i] = first;
    m2[i] = second;
    T top = second;
    if constexpr (kAmsgrad) largest[i] = top = m::maximum(largest[i], second);
    p[i] = param - step * (first / (m::sqrt(top) / root2 + eps));
  }
}

struct Sgd {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first_step;
};

// `buffer`: the momentum, or null.
template <class T>
inline __attribute__((always_inline)) void sgd(const Sgd& s, T* p, const T* g, T* buffer,
                                               int64_t n) {
  const T lr = T(s.lr), momentum = T(s.momentum), rest = T(1 - s.dampening),
          decay = T(s.weight_decay);
  const T sign = s.maximize ? T(-1) : T(1);
  const bool first = s.first_step, nesterov = s.nesterov, decays = s.weight_decay != 0;
  for (int64_t i = 0; i < n; i++) {
    T grad = g[i] * sign;
    grad = decays ? grad + decay * p[i] : grad;  // 0 times an infinite parameter would be NaN
    if (buffer) {
      const T moved = first ? grad : momentum * buffer[i] + rest * grad;
      buffer[i] = moved;
      grad = nesterov ? grad + momentum * moved : moved;
    }
    p[i] -= lr * grad;
  }
}

// target_clones does not apply to templates, so each clone is a function that inlines one.
SW_CLONES void adam_row(const Adam& a, float* p, const float* g, float* m1, float* m2, int64_t n) {
  adam<false, float>(a, p, g, m1, m2, nullptr, n);
}
SW_CLONES void amsgrad_row(const Adam& a, float* p, const float* g, float* m1, float* m2,
                           float* top, int64_t n) {
  adam<true>(a, p, g, m1, m2, top, n);
}
SW_CLONES void adam_row(const Adam& a, double* p, const double* g, double* m1, double* m2,
                        int64_t n) {
  adam<false, double>(a, p, g, m1, m2, nullptr, n);
}
SW_CLONES void amsgrad_row(const Adam& a, double* p, const double* g, double* m1, double* m2,
                           double* top, int64_t n) {
  adam<true>(a, p, g, m1, m2, top, n);
}
SW_CLONES void sgd_row(const Sgd& s, float* p, const float* g, float* buffer, int64_t n) {
  sgd(s, p, g, buffer, n);
}
SW_CLONES void sgd_row(const Sgd& s, double* p, const double* g, double* buffer, int64_t n) {
  sgd(s, p, g, buffer, n);
}

// The numbers of one step of Adam; P is a struct of parameters.
template <class P>
Adam adam_of(const P& p, double lr, double bias_correction1, double bias_correction2) {
  return {lr,
          p.beta1,
          p.beta2,
          p.eps,
          p.weight_decay,
          lr / bias_correction1,
          std::sqrt(bias_correction2),
          p.grad_scale,
          p.decoupled != 0,
          p.maximize != 0};
}

template <class P>
Sgd sgd_of(const P& p, double lr, bool first_step) {
  return {lr,        p.momentum, p.dampening, p.weight_decay, p.nesterov != 0, p.maximize != 0,
          first_step};
}

double number_of(const TensorView& view) {
  double value = view.scalar;
  if (!view.is_immediate) gather(view, 0, 1, &value);
  return value;
}

// The learning rate: the first input, or `number` if that is absent.
double rate_of(const KernelCall& call, double number) {
  return call.input(0).is_immediate ? number : number_of(call.input(0));
}

// Whether the second input, if it is there, has found a gradient that is not finite.
bool found_inf(const KernelCall& call) {
  return !call.input(1).is_immediate && number_of(call.input(1)) != 0;
}

// Steps the tensors of the lists that begin at input `from`; of(i) has the numbers of tensor i.
template <class Of>
Status adam_steps(const KernelCall& call, int32_t from, int32_t count, Of&& of) {
  for_each_chunk(chunks_of(call, from, count), 4, [&](int64_t, const Chunk& chunk) {
    const int32_t i = from + chunk.tensor;
    const Adam& adam = of(chunk.tensor);
    with_float_type(call.input(i).dtype, [&](auto type) {
      using T = decltype(type);
      T buffers[5][kChunk];
      Elements<T> param(call.input(i), chunk, buffers[0]),
          grad(call.input(count + i), chunk, buffers[1]);
      Elements<T> first(call.input(2 * count + i), chunk, buffers[2]),
          second(call.input(3 * count + i), chunk, buffers[3]);
      const TensorView& top = call.input(4 * count + i);
      if (top.is_immediate) {
        adam_row(adam, param.data, grad.data, first.data, second.data, chunk.count);
      } else {
        Elements<T> largest(top, chunk, buffers[4]);
        amsgrad_row(adam, param.data, grad.data, first.data, second.data, largest.data,
                    chunk.count);
        largest.store();
      }
      param.store();
      first.store();
      second.store();
    });
  });
  return kOk;
}

template <class Of>
Status sgd_steps(const KernelCall& call, int32_t from, int32_t count, Of&& of) {
  for_each_chunk(chunks_of(call, from, count), 4, [&](int64_t, const Chunk& chunk) {
    const int32_t i = from + chunk.tensor;
    const Sgd& sgd = of(chunk.tensor);
    with_float_type(call.input(i).dtype, [&](auto type) {
      using T = decltype(type);
      T buffers[3][kChunk];
      Elements<T> param(call.input(i), chunk, buffers[0]),
          grad(call.input(count + i), chunk, buffers[1]);
      const TensorView& momentum = call.input(2 * count + i);
      if (momentum.is_immediate) {
        sgd_row(sgd, param.data, grad.data, nullptr, chunk.count);
      } else {
        Elements<T> buffer(momentum, chunk, buffers[2]);
        sgd_row(sgd, param.data, grad.data, buffer.data, chunk.count);
        buffer.store();
      }
      param.store();
    });
  });
  return kOk;
}

}  // namespace

Status adam_step(const KernelCall& call) {
  const auto& p = call.params_as<AdamStepParams>();
  const Adam adam = adam_of(p, p.lr, p.bias_correction1, p.bias_correction2);
  return adam_steps(call, 0, static_cast<int32_t>(p.count),
                    [&](int32_t) -> const Adam& { return adam; });
}

Status adam_step_capturable(const KernelCall& call) {
  const auto& p = call.params_as<AdamStepCapturableParams>();
  const auto count = static_cast<int32_t>(p.count);
  if (found_inf(call)) return kOk;
  const double lr = rate_of(call, p.lr);
  std::vector<Adam> adams;
  for (int32_t i = 0; i < count; i++) {
    const double step = number_of(call.input(2 + 5 * count + i));
    adams.push_back(adam_of(p, lr, 1 - std::pow(p.beta1, step), 1 - std::pow(p.beta2, step)));
  }
  return adam_steps(call, 2, count, [&](int32_t i) -> const Adam& { return adams[i]; });
}

Status sgd_step(const KernelCall& call) {
  const auto& p = call.params_as<SgdStepParams>();
  const Sgd sgd = sgd_of(p, p.lr, p.first_step != 0);
  return sgd_steps(call, 0, static_cast<int32_t>(p.count),
                   [&](int32_t) -> const Sgd& { return sgd; });
}

Status sgd_step_capturable(const KernelCall& call) {
  const auto& p = call.params_as<SgdStepCapturableParams>();
  const auto count = static_cast<int32_t>(p.count);
  if (found_inf(call)) return kOk;
  const double lr = rate_of(call, p.lr);
  std::vector<Sgd> sgds;
  for (int32_t i = 0; i < count; i++) {
    const TensorView& step = call.input(2 + 3 * count + i);
    sgds.push_back(sgd_of(p, lr, !step.is_immediate && number_of(step) == 1));
  }
  return sgd_steps(call, 2, count, [&](int32_t i) -> const Sgd& { return sgds[i]; });
}

Status foreach_add(const KernelCall& call) {
  const auto& p = call.params_as<ForeachAddParams>();
  const auto count = static_cast<int32_t>(p.count);
  for_each_chunk(chunks_of(call, 0, count), 8, [&](int64_t, const Chunk& chunk) {
    const TensorView& view = call.input(chunk.tensor);
    with_compute_type(view.dtype, [&](auto type) {
      using T = decltype(type);
      T buffers[2][kChunk];
      Elements<T> to(view, chunk, buffers[0]),
          from(call.input(count + chunk.tensor), chunk, buffers[1]);
      row_scale_add_any(from.data, static_cast<T>(p.alpha), to.data, chunk.count);
      to.store();
    });
  });
  return kOk;
}

Status foreach_mul(const KernelCall& call) {
  const auto& p = call.params_as<ForeachMulParams>();
  const std::vector<Chunk> chunks = chunks_of(call, 0, static_cast<int32_t>(p.count));
  for_each_chunk(chunks, 8, [&](int64_t, const Chunk& chunk) {
    const TensorView& view = call.input(chunk.tensor);
    with_compute_type(view.dtype, [&](auto type) {
      using T = decltype(type);
      T buffer[kChunk];
      Elements<T> to(view, chunk, buffer);
      for (int64_t i = 0; i < chunk.count; i++) to.data[i] *= static_cast<T>(p.scalar);
      to.store();
    });
  });
  return kOk;
}

Status foreach_add_scalar(const KernelCall& call) {
  const auto& p = call.params_as<ForeachAddScalarParams>();
  const std::vector<Chunk> chunks = chunks_of(call, 0, static_cast<int32_t>(p.count));
  for_each_chunk(chunks, 8, [&](int64_t, const Chunk& chunk) {
    const TensorView& view = call.input(chunk.tensor);
    with_compute_type(view.dtype, [&](auto type) {
      using T = decltype(type);
      T buffer[kChunk];
      Elements<T> to(view, chunk, buffer);
      for (int64_t i = 0; i < chunk.count; i++) to.data[i] += static_cast<T>(p.scalar);
      to.store();
    });
  });
  return kOk;
}

Status foreach_norm(const KernelCall& call) {
  const auto count = static_cast<int32_t>(call.params_as<ForeachNormParams>().count);
  const std::vector<Chunk> chunks = chunks_of(call, 0, count);
  std::vector<double> squares(chunks.size());
  for_each_chunk(chunks, 8, [&](int64_t k, const Chunk& chunk) {
    const TensorView& view = call.input(chunk.tensor);
    with_float_type(view.dtype, [&](auto type) {
      using T = decltype(type);
      T buffer[kChunk];
      Elements<T> x(view, chunk, buffer);
      squares[k] = row_wide_square_sum(x.data, chunk.count);
    });
  });
  std::vector<double> totals(static_cast<size_t>(count), 0.0);
  for (size_t k = 0; k < chunks.size(); k++) totals[chunks[k].tensor] += squares[k];
  for (double& total : totals) total = std::sqrt(total);
  scatter(call.output(0), 0, count, totals.data());
  return kOk;
}

}  // namespace shardwise::cpu
