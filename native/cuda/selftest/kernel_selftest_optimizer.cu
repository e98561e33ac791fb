// Tests sgd_step, adam_step and their capturable twins, foreach_add, foreach_add_scalar, foreach_mul
// and foreach_norm.
#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

// Sizes around words of 4, steps of 512 and chunks of 1024 elements.
const std::vector<Sizes> kShapes = {{1},    {7},    {515},   {1000, 33},    {0},     {1023}, {1024},
                                    {1027}, {2050}, {16384}, {64, 3, 3, 3}, {16385}, {50001}};

std::vector<Tensor> tensors(DType dtype, uint64_t seed, double low = -1, double high = 1,
                            int repeat = 1) {
  std::vector<Tensor> list;
  for (int r = 0; r < repeat; r++)
    for (const Sizes& s : kShapes) list.push_back(uniform(dtype, s, seed++, low, high));
  // Two tensors that are not dense, one of them empty, and one that is not aligned.
  list.push_back(uniform(dtype, {20, 30}, seed, low, high).transpose(0, 1));
  list.push_back(uniform(dtype, {0, 30}, seed, low, high).transpose(0, 1));
  list.push_back(uniform(dtype, {3001}, seed, low, high).slice(0, 1, 1, 3000));
  return list;
}

std::vector<Tensor> clones(const std::vector<Tensor>& list) {
  std::vector<Tensor> out;
  for (const Tensor& t : list) out.push_back(t.clone());
  return out;
}

std::vector<Tensor> joined(std::initializer_list<std::vector<Tensor>> lists) {
  std::vector<Tensor> out;
  for (const auto& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

void test_sgd() {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (int variant = 0; variant < 5; variant++) {
      const double momentum = variant >= 1 ? 0.9 : 0, decay = variant >= 2 ? 0.1 : 0,
                   dampening = variant == 3 ? 0.2 : 0;
      const bool nesterov = variant == 4, first = variant == 1, maximize = variant == 3;
      const auto p = tensors(dtype, 1),
                 g = tensors(dtype == DType::Float32 && variant == 2 ? DType::BFloat16 : dtype, 50),
                 b = tensors(dtype, 90);
      const auto p0 = clones(p), b0 = clones(b);
      const double count = static_cast<double>(p.size()), lr = 0.05;
      const std::vector<double> params = {count,
                                          lr,
                                          momentum,
                                          dampening,
                                          decay,
                                          nesterov ? 1.0 : 0.0,
                                          maximize ? 1.0 : 0.0,
                                          first ? 1.0 : 0.0};
      if (!run("sgd_step", momentum != 0 ? joined({p, g, b}) : joined({p, g}), {}, params).ok())
        continue;
      for (size_t t = 0; t < p.size(); t++) {
        const auto buffer = [&](int64_t i) {
          const double grad = (maximize ? -1 : 1) * g[t].value(i) + decay * p0[t].value(i);
          return first ? grad : momentum * b0[t].value(i) + (1 - dampening) * grad;
        };
        const auto expected = [&](int64_t i) {
          double grad = (maximize ? -1 : 1) * g[t].value(i) + decay * p0[t].value(i);
          if (momentum != 0) grad = nesterov ? grad + momentum * buffer(i) : buffer(i);
          return p0[t].value(i) - lr * grad;
        };
        expect("sgd_step", "variant " + std::to_string(variant) + " tensor " + std::to_string(t),
               p[t], expected);
        if (momentum != 0) expect("sgd_step", "buffer", b[t], buffer);
      }
    }
}

void test_adam() {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (int variant = 0; variant < 5; variant++) {
      const bool decoupled = variant != 1, amsgrad = variant == 2, maximize = variant == 3,
                 mixed = variant == 4;
      const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = variant == 0 ? 0 : 0.1,
                   scale = variant == 3 ? 0.25 : 1;
      const double correction1 = 1 - std::pow(beta1, 3), correction2 = 1 - std::pow(beta2, 3);
      const DType state = mixed && dtype == DType::BFloat16 ? DType::Float32 : dtype;
      const int repeat = variant == 0 ? 22 : 1;  // more than one table
      const auto p = tensors(dtype, 1, -1, 1, repeat),
                 g = tensors(mixed && dtype == DType::Float32 ? DType::BFloat16 : dtype, 50, -1, 1,
                             repeat);
      const auto m = tensors(state, 90, -1, 1, repeat), v = tensors(state, 130, 0.1, 1, repeat),
                 vmax = tensors(state, 170, 0.1, 1, repeat);
      const auto p0 = clones(p), m0 = clones(m), v0 = clones(v), vmax0 = clones(vmax);
      const std::vector<double> params = {static_cast<double>(p.size()),
                                          lr,
                                          beta1,
                                          beta2,
                                          eps,
                                          decay,
                                          decoupled ? 1.0 : 0.0,
                                          amsgrad ? 1.0 : 0.0,
                                          maximize ? 1.0 : 0.0,
                                          correction1,
                                          correction2,
                                          scale};
      if (!run("adam_step", amsgrad ? joined({p, g, m, v, vmax}) : joined({p, g, m, v}), {}, params)
               .ok())
        continue;
      for (size_t t = 0; t < p.size(); t++) {
        const auto grad = [&](int64_t i) {
          const double x = (maximize ? -1 : 1) * g[t].value(i) * scale;
          return decay != 0 && !decoupled ? x + decay * p0[t].value(i) : x;
        };
        const auto first = [&](int64_t i) {
          return beta1 * m0[t].value(i) + (1 - beta1) * grad(i);
        };
        const auto second = [&](int64_t i) {
          return beta2 * v0[t].value(i) + (1 - beta2) * grad(i) * grad(i);
        };
        const auto largest = [&](int64_t i) {
          return amsgrad ? std::fmax(vmax0[t].value(i), second(i)) : second(i);
        };
        const auto expected = [&](int64_t i) {
          const double start = decoupled ? p0[t].value(i) * (1 - lr * decay) : p0[t].value(i);
          return start - lr / correction1 * first(i) /
                             (std::sqrt(largest(i)) / std::sqrt(correction2) + eps);
        };
        const std::string label =
            "variant " + std::to_string(variant) + " tensor " + std::to_string(t);
        expect("adam_step", label, p[t], expected);
        expect("adam_step", label + " exp_avg", m[t], first);
        expect("adam_step", label + " exp_avg_sq", v[t], second);
        if (amsgrad) expect("adam_step", label + " max", vmax[t], largest);
      }
    }
}

// The counts of steps: 1, 2, 3, 1, ...
std::vector<Tensor> counts(size_t n) {
  std::vector<Tensor> list;
  for (size_t t = 0; t < n; t++)
    list.push_back(uniform(DType::Float32, {1}, t, static_cast<double>(t % 3 + 1),
                           static_cast<double>(t % 3 + 1)));
  return list;
}

// The capturable kernels equal the others, called for one tensor with the numbers of its step.
void test_capturable_adam() {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (int variant = 0; variant < 4; variant++) {
      const bool decoupled = variant != 1, amsgrad = variant == 2, tensor_rate = variant != 3;
      const double beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = variant == 0 ? 0 : 0.1;
      const int repeat = variant == 0 ? 22 : 1;  // more than one table
      const Tensor rate = uniform(DType::Float32, {1}, 7, 0.01, 0.02);
      const double lr = tensor_rate ? rate.value(0) : 0.01;
      const auto p = tensors(dtype, 1, -1, 1, repeat), g = tensors(dtype, 50, -1, 1, repeat),
                 m = tensors(dtype, 90, -1, 1, repeat), v = tensors(dtype, 130, 0.1, 1, repeat),
                 vmax = tensors(dtype, 170, 0.1, 1, repeat), steps = counts(p.size());
      const auto p0 = clones(p), m0 = clones(m), v0 = clones(v), vmax0 = clones(vmax);
      const std::vector<double> flags = {decoupled ? 1.0 : 0.0, amsgrad ? 1.0 : 0.0, 0};
      const double count = static_cast<double>(p.size());
      const std::vector<double> params = {count, lr,       beta1,    beta2,    eps,
                                          decay, flags[0], flags[1], flags[2], 1};
      const auto absent = std::vector<Tensor>(p.size(), number(0));
      const std::vector<Tensor> singles = {tensor_rate ? rate : number(0), number(0)};
      if (!run("adam_step_capturable",
               joined({singles, p, g, m, v, amsgrad ? vmax : absent, steps}), {}, params)
               .ok())
        continue;
      for (size_t t = 0; t < p.size(); t++) {
        const double step = static_cast<double>(t % 3 + 1);
        const std::vector<double> own = {1,
                                         lr,
                                         beta1,
                                         beta2,
                                         eps,
                                         decay,
                                         flags[0],
                                         flags[1],
                                         flags[2],
                                         1 - std::pow(beta1, step),
                                         1 - std::pow(beta2, step),
                                         1};
        run("adam_step", {p0[t], g[t], m0[t], v0[t], amsgrad ? vmax0[t] : number(0)}, {}, own);
        const std::string label =
            "variant " + std::to_string(variant) + " tensor " + std::to_string(t);
        const auto of = [](const Tensor& t) { return [&t](int64_t i) { return t.value(i); }; };
        expect("adam_step_capturable", label, p[t], of(p0[t]));
        expect("adam_step_capturable", label + " exp_avg", m[t], of(m0[t]));
        expect("adam_step_capturable", label + " exp_avg_sq", v[t], of(v0[t]));
        if (amsgrad) expect("adam_step_capturable", label + " max", vmax[t], of(vmax0[t]));
      }
    }
}

void test_capturable_sgd() {
  for (int variant = 0; variant < 3; variant++) {
    const double momentum = variant == 0 ? 0 : 0.9, dampening = variant == 2 ? 0.2 : 0;
    const Tensor rate = uniform(DType::Float64, {1}, 7, 0.01, 0.02);
    const double lr = rate.value(0);
    const auto p = tensors(DType::Float32, 1), g = tensors(DType::Float32, 50),
               b = tensors(DType::Float32, 90), steps = counts(p.size());
    const auto p0 = clones(p), b0 = clones(b);
    const double count = static_cast<double>(p.size());
    const auto absent = std::vector<Tensor>(p.size(), number(0));
    const bool moves = momentum != 0;
    if (!run("sgd_step_capturable",
             joined({{rate, number(0)}, p, g, moves ? b : absent, moves ? steps : absent}), {},
             {count, 0, momentum, dampening, 0.1, 0, 0})
             .ok())
      continue;
    for (size_t t = 0; t < p.size(); t++) {
      run("sgd_step", {p0[t], g[t], moves ? b0[t] : number(0)}, {},
          {1, lr, momentum, dampening, 0.1, 0, 0, t % 3 == 0 ? 1.0 : 0.0});
      const std::string label =
          "variant " + std::to_string(variant) + " tensor " + std::to_string(t);
      const auto of = [](const Tensor& t) { return [&t](int64_t i) { return t.value(i); }; };
      expect("sgd_step_capturable", label, p[t], of(p0[t]));
      if (moves) expect("sgd_step_capturable", label + " buffer", b[t], of(b0[t]));
    }
  }
}

// Nothing changes where found_inf is not 0, and everything as without it where it is 0.
void test_found_inf() {
  const Tensor none = uniform(DType::Float32, {1}, 7, 0, 0),
               some = uniform(DType::Float32, {1}, 7, 1, 1);
  for (const bool adam : {true, false}) {
    const std::string name = adam ? "adam_step_capturable" : "sgd_step_capturable";
    const auto p = tensors(DType::Float32, 1), g = tensors(DType::Float32, 50),
               m = tensors(DType::Float32, 90), v = tensors(DType::Float32, 130, 0.1, 1),
               steps = counts(p.size());
    const auto p0 = clones(p), m0 = clones(m), v0 = clones(v), p1 = clones(p), m1 = clones(m),
               v1 = clones(v);
    const double count = static_cast<double>(p.size());
    const auto absent = std::vector<Tensor>(p.size(), number(0));
    const std::vector<double> params =
        adam ? std::vector<double>{count, 0.01, 0.9, 0.99, 1e-6, 0.1, 1, 0, 0, 1}
             : std::vector<double>{count, 0.01, 0.9, 0, 0.1, 0, 0};
    const auto step = [&](const Tensor& found, const std::vector<Tensor>& p,
                          const std::vector<Tensor>& m, const std::vector<Tensor>& v) {
      const std::vector<Tensor> singles = {number(0), found};
      return run(name,
                 adam ? joined({singles, p, g, m, v, absent, steps})
                      : joined({singles, p, g, m, steps}),
                 {}, params)
          .ok();
    };
    if (!step(some, p, m, v) || !step(none, p1, m1, v1)) continue;
    const auto of = [](const Tensor& t) { return [&t](int64_t i) { return t.value(i); }; };
    for (size_t t = 0; t < p.size(); t++) {
      const std::string label = "skipped tensor " + std::to_string(t);
      expect(name, label, p[t], of(p0[t]));
      expect(name, label + " state", m[t], of(m0[t]));
      expect(name, label + " exp_avg_sq", v[t], of(v0[t]));
    }
    if (!step(number(0), p, m, v)) continue;
    for (size_t t = 0; t < p.size(); t++) {
      const std::string label = "taken tensor " + std::to_string(t);
      expect(name, label, p1[t], of(p[t]));
      expect(name, label + " state", m1[t], of(m[t]));
      expect(name, label + " exp_avg_sq", v1[t], of(v[t]));
    }
  }
}

void test_foreach() {
  for (DType dtype : kFloats) {
    const auto y = tensors(dtype, 1, -1, 1, 22), x = tensors(dtype, 400, -1, 1, 22), y0 = clones(y);
    const double count = static_cast<double>(y.size());
    if (run("foreach_add", joined({y, x}), {}, {count, -0.5}).ok())
      for (size_t t = 0; t < y.size(); t++)
        expect("foreach_add", "tensor " + std::to_string(t), y[t],
               [&](int64_t i) { return y0[t].value(i) - 0.5 * x[t].value(i); });
    const auto y2 = clones(y);
    if (run("foreach_add_scalar", y, {}, {count, -0.25}).ok())
      for (size_t t = 0; t < y.size(); t++)
        expect("foreach_add_scalar", "tensor " + std::to_string(t), y[t],
               [&](int64_t i) { return y2[t].value(i) - 0.25; });
    const auto y1 = clones(y);
    if (run("foreach_mul", y, {}, {count, 1.25}).ok())
      for (size_t t = 0; t < y.size(); t++)
        expect("foreach_mul", "tensor " + std::to_string(t), y[t],
               [&](int64_t i) { return y1[t].value(i) * 1.25; });
    const DType out = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
    const Tensor norms = make(out, {static_cast<int64_t>(x.size())});
    if (!run("foreach_norm", x, {norms}, {count}).ok()) continue;
    expect("foreach_norm", dtype_name(dtype), norms, [&](int64_t t) {
      double s = 0;
      const Tensor& tensor = x[static_cast<size_t>(t)];
      for (int64_t i = 0; i < tensor.numel(); i++) s += tensor.value(i) * tensor.value(i);
      return std::sqrt(s);
    });
  }
  const auto y = tensors(DType::Float32, 1), x = tensors(DType::BFloat16, 2), y0 = clones(y);
  if (run("foreach_add", joined({y, x}), {}, {static_cast<double>(y.size()), 2}).ok())
    for (size_t t = 0; t < y.size(); t++)
      expect("foreach_add", "mixed dtypes", y[t],
             [&](int64_t i) { return y0[t].value(i) + 2 * x[t].value(i); });
}

}  // namespace

void test_optimizer() {
  test_sgd();
  test_adam();
  test_capturable_adam();
  test_capturable_sgd();
  test_found_inf();
  test_foreach();
}

}  // namespace selftest::bytes
