// random_*, dropout: draws depend only on the seed, the offset and the global index of an element,
// never on the number of threads or the sharding of the tensor.
#include "../../generated/op_params.h"
#include "../../include/uniform_bound.h"
#include "../philox.h"
#include "copy.h"
#include "layout.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kChunk = 512;
constexpr int64_t kGrain = 8192;

char* at(const TensorView& view, int64_t offset) {
  return static_cast<char*>(view.data) + offset * item_size(view.dtype);
}

// Draws for elements first, first + stride, ... of the global tensor. make(words, n, out) turns
// words, from the start of a counter on, into the n elements that own them; `kWords` is the number
// of words of an element. The result is at the returned address in `out`, which has space for
// kChunk + 4.
template <int kWords, class T, class Make>
T* draw(const PhiloxKey& key, uint64_t first, int64_t stride, int64_t n, T* out, Make make) {
  constexpr uint64_t per_counter = 4 / kWords;
  uint32_t words[(kChunk + 8) * kWords];
  if (stride == 1) {
    const int64_t lead = static_cast<int64_t>(first % per_counter);
    const int64_t counters =
        (lead + n + static_cast<int64_t>(per_counter) - 1) / static_cast<int64_t>(per_counter);
    pointwise_table().random_words(key, first / per_counter, counters, words);
    make(words, lead + n, out);
    return out + lead;
  }
  for (int64_t i = 0; i < n; i++) {
    const uint64_t index = first + static_cast<uint64_t>(i * stride);
    T element[4];
    philox_block(key, index / per_counter, words);
    make(words, static_cast<int64_t>(index % per_counter) + 1, element);
    out[i] = element[index % per_counter];
  }
  return out;
}

template <int kWords, class T, class Make>
Status fill_random(const KernelCall& call, const PhiloxKey& key, ComputeType type, Make make) {
  const TensorView& index = call.input(0);
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  const auto scatter = pointwise_table().scatter[static_cast<int32_t>(type)];
  const uint64_t base = static_cast<uint64_t>(static_cast<int64_t>(index.scalar));
  const Layout layout({&index, &y});
  each_run(layout, kGrain, [&](const int64_t* offset, int64_t n) {
    alignas(64) T buffer[kChunk + 8];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      const uint64_t first = base + static_cast<uint64_t>(offset[0] + i * layout.stride(0));
      const T* drawn = draw<kWords>(key, first, layout.stride(0), count, buffer, make);
      scatter(y.dtype, drawn, at(y, offset[1] + i * layout.stride(1)), layout.stride(1), count);
    }
  });
  return kOk;
}

template <class P>
PhiloxKey key_of(const P& p) {
  return philox_key(p.seed_low, p.seed_high, p.offset);
}

}  // namespace

Status random_uniform(const KernelCall& call) {
  const RandomUniformParams& p = call.params_as<RandomUniformParams>();
  const double largest = largest_below(p.high, p.low, call.output(0).dtype);
  if (call.output(0).dtype == DType::Float64) {
    return fill_random<2, double>(
        call, key_of(p), ComputeType::Double, [&](const uint32_t* words, int64_t n, double* out) {
          for (int64_t i = 0; i < n; i++)
            out[i] = std::min(
                p.low + (p.high - p.low) * uniform_double(words[2 * i], words[2 * i + 1]), largest);
        });
  }
  const float low = static_cast<float>(p.low);
  const float range = static_cast<float>(p.high - p.low);
  const float most = static_cast<float>(largest);
  return fill_random<1, float>(call, key_of(p), ComputeType::Float,
                               [=](const uint32_t* words, int64_t n, float* out) {
                                 for (int64_t i = 0; i < n; i++)
                                   out[i] = std::min(low + range * uniform_float(words[i]), most);
                               });
}

Status random_normal(const KernelCall& call) {
  const RandomNormalParams& p = call.params_as<RandomNormalParams>();
  if (call.output(0).dtype == DType::Float64) {
    const auto normals = pointwise_table().normal_doubles;
    const auto make = [&](const uint32_t* words, int64_t n, double* out) {
      normals(words, n, p.mean, p.std, out);
    };
    return fill_random<1, double>(call, key_of(p), ComputeType::Double, make);
  }
  const auto normals = pointwise_table().normal_floats;
  const float mean = static_cast<float>(p.mean);
  const float deviation = static_cast<float>(p.std);
  return fill_random<1, float>(call, key_of(p), ComputeType::Float,
                               [=](const uint32_t* words, int64_t n, float* out) {
                                 normals(words, n, mean, deviation, out);
                               });
}

Status random_integer(const KernelCall& call) {
  const RandomIntegerParams& p = call.params_as<RandomIntegerParams>();
  const int64_t low = static_cast<int64_t>(p.low);
  const int64_t high = static_cast<int64_t>(p.high);
  if (high <= low)
    return fail(call.error, Code::Invalid, "random_integer: high must be greater than low");
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const bool power = (range & (range - 1)) == 0;
  return fill_random<2, int64_t>(
      call, key_of(p), ComputeType::Int64, [=](const uint32_t* words, int64_t n, int64_t* out) {
        for (int64_t i = 0; i < n; i++) {
          const uint64_t drawn = static_cast<uint64_t>(words[2 * i + 1]) << 32 | words[2 * i];
          out[i] = static_cast<int64_t>(static_cast<uint64_t>(low) +
                                        (power ? drawn & (range - 1) : drawn % range));
        }
      });
}

Status random_bernoulli(const KernelCall& call) {
  const RandomBernoulliParams& p = call.params_as<RandomBernoulliParams>();
  const float probability = static_cast<float>(p.probability);
  return fill_random<1, float>(call, key_of(p), ComputeType::Float,
                               [=](const uint32_t* words, int64_t n, float* out) {
                                 for (int64_t i = 0; i < n; i++)
                                   out[i] = uniform_float(words[i]) < probability ? 1.0f : 0.0f;
                               });
}

namespace {

void uniform_floats(const uint32_t* words, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = uniform_float(words[i]);
}

template <class T>
void keep(const float* uniform, float probability, T scale, int64_t n, T* values, uint8_t* kept) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const bool keeps = uniform[i] >= probability;
    const T scaled = values[i] * scale;
    values[i] = keeps ? scaled : T(0);
    kept[i] = keeps;
  }
}

template <class T>
void run_dropout(const KernelCall& call, ComputeType type) {
  const DropoutParams& p = call.params_as<DropoutParams>();
  const TensorView& x = call.input(0);
  const TensorView& index = call.input(1);
  const TensorView& y = call.output(0);
  const TensorView& mask = call.output(1);
  const PhiloxKey key = key_of(p);
  const auto gather = pointwise_table().gather[static_cast<int32_t>(type)];
  const auto scatter = pointwise_table().scatter[static_cast<int32_t>(type)];
  const float probability = static_cast<float>(p.probability);
  const T scale = static_cast<T>(1 / (1 - p.probability));
  const uint64_t base = static_cast<uint64_t>(static_cast<int64_t>(index.scalar));
  const Layout layout({&x, &index, &mask, &y});
  each_run(layout, kGrain, [&](const int64_t* offset, int64_t n) {
    alignas(64) T values[kChunk];
    alignas(64) float buffer[kChunk + 8];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      const uint64_t first = base + static_cast<uint64_t>(offset[1] + i * layout.stride(1));
      const float* uniform = draw<1>(key, first, layout.stride(1), count, buffer, uniform_floats);
      gather(x.dtype, at(x, offset[0] + i * layout.stride(0)), layout.stride(0), values, count);
      uint8_t kept[kChunk];
      keep(uniform, probability, scale, count, values, kept);
      scatter(y.dtype, values, at(y, offset[3] + i * layout.stride(3)), layout.stride(3), count);
      copy_run(DType::Bool, kept, 1, DType::Bool, at(mask, offset[2] + i * layout.stride(2)),
               layout.stride(2), count);
    }
  });
}

}  // namespace

Status dropout(const KernelCall& call) {
  if (call.output(0).numel == 0) return kOk;
  if (call.output(0).dtype == DType::Float64) {
    run_dropout<double>(call, ComputeType::Double);
  } else {
    run_dropout<float>(call, ComputeType::Float);
  }
  return kOk;
}

}  // namespace shardwise::cpu
