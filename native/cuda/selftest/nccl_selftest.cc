// Self-test of collectives between GPUs. Ranks are threads of this process with a GPU each. Needs a
// built cuda-backend.so and libnccl.
//
//   cmake --build build/cmake --target nccl_selftest
//   build/selftest/nccl_selftest build/Release/cuda-backend.so
//     [ranks=N] [values] [splits] [faults] [sums] [time] [absent]
//
// Without names it runs values, splits and faults. `sums` is short, for compute-sanitizer. `absent`
// needs no GPU: it checks the error message without NCCL. Prints PASS or FAIL for each test; exits
// with 0 if all passed.
#include "nccl_selftest.h"

#include <dlfcn.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

namespace selftest {
namespace {

std::mutex printing;
int failed_now = 0, failed_ever = 0, checks_now = 0;
constexpr int kMostPrinted = 12;

}  // namespace

bool check(bool condition, int32_t rank, const char* format, ...) {
  std::lock_guard<std::mutex> lock(printing);
  checks_now++;
  if (condition) return true;
  failed_ever++;
  if (failed_now++ >= kMostPrinted) return false;
  va_list args;
  va_start(args, format);
  printf("  failed on rank %d: ", rank);
  vprintf(format, args);
  printf("\n");
  fflush(stdout);
  va_end(args);
  return false;
}

void end_test(const char* name) {
  printf("%s %s (%d checks, %d failed)\n", failed_now == 0 ? "PASS" : "FAIL", name, checks_now,
         failed_now);
  fflush(stdout);
  failed_now = checks_now = 0;
}

bool all_passed() { return failed_ever == 0; }

double seconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

bool contains(const ErrorText& error, const char* part) {
  return std::strstr(error.text, part) != nullptr;
}

// ---- ranks -------------------------------------------------------------------------------------

Status Rank::run_in(void* member, CollectiveCall call, ErrorText* error) const {
  call.stream = stream;
  call.error = error;
  return backend.comm->run(member, call);
}

void Rank::synchronize() const {
  ErrorText error;
  check(backend.stream_synchronize(stream, &error).ok(), rank, "stream_synchronize: %s",
        error.text);
}

bool run_ranks(const Backend& backend, int32_t size, int64_t timeout_ms, const Body& body) {
  char id[kCommIdBytes] = {};
  ErrorText error;
  if (!check(backend.comm_id(id, &error).ok(), 0, "comm_id: %s", error.text)) return false;
  std::atomic<int> joined{0};
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < size; r++) {
    threads.emplace_back([&, r] {
      Rank rank{backend, r, size, timeout_ms, nullptr, nullptr, Scratch{backend}};
      ErrorText text;
      bool ok = check(backend.stream_create(r, 0, rank.scratch.source(), &rank.stream, &text).ok(),
                      r, "stream_create: %s", text.text);
      ok = ok && check(backend.comm_create(r, id, r, size, timeout_ms, 0, &rank.group, &text).ok(),
                       r, "comm_create: %s", text.text);
      if (ok) {
        joined++;
        body(rank);
      }
      const double before = seconds();
      if (rank.group) backend.comm->destroy(rank.group);
      check(seconds() - before < 16, r, "destroy took %.1f s", seconds() - before);
      if (rank.stream) backend.stream_destroy(rank.stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return joined == size;
}

CollectiveCall call_of(Collective kind, DType dtype, const void* in, void* out, const char* name) {
  CollectiveCall call = {};
  call.kind = kind;
  call.dtype = dtype;
  call.in = in;
  call.out = out;
  call.name = name;
  call.where = "selftest.ts:1:1";
  return call;
}

// ---- values ------------------------------------------------------------------------------------

double value_of(DType dtype, Reduce reduce, int32_t rank, int64_t index) {
  const uint64_t mixed = (static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15u +
                          static_cast<uint64_t>(rank) * 0xD1B54A32D192ED03u) >>
                         33;
  if (dtype == DType::Bool) return static_cast<double>(mixed % 3 == 0);
  if (reduce == Reduce::Product) return static_cast<double>(mixed % 2 + 1);
  return static_cast<double>(mixed % 7) - (dtype == DType::UInt8 ? 0 : 3);
}

double wrapped(DType dtype, double value) {
  const auto whole = static_cast<int64_t>(value);
  switch (dtype) {
    case DType::Int8:
      return static_cast<int8_t>(whole);
    case DType::UInt8:
      return static_cast<uint8_t>(whole);
    case DType::Int16:
      return static_cast<int16_t>(whole);
    default:
      return value;
  }
}

// Tolerance of averages; the elements are small integers.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 1e-14;
    case DType::Float32:
      return 2e-6;
    case DType::Float16:
      return 1e-2;
    default:
      return 6e-2;
  }
}

template <class T>
void store(char* out, T value) {
  memcpy(out, &value, sizeof value);
}
template <class T>
double load(const char* in) {
  T value;
  memcpy(&value, in, sizeof value);
  return static_cast<double>(value);
}

void encode(DType dtype, double value, char* out) {
  const auto single = static_cast<float>(value);
  uint32_t bits;
  memcpy(&bits, &single, 4);
  switch (dtype) {
    case DType::Float64:
      return store(out, value);
    case DType::Float32:
      return store(out, single);
    case DType::BFloat16:
      return store(out, static_cast<uint16_t>(bits >> 16));
    case DType::Float16: {  // exact for these values
      const uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 255,
                     mantissa = bits >> 13 & 1023;
      return store(
          out, static_cast<uint16_t>(value == 0 ? sign : sign | (exponent - 112) << 10 | mantissa));
    }
    case DType::Int64:
      return store(out, static_cast<int64_t>(value));
    case DType::Int32:
      return store(out, static_cast<int32_t>(value));
    case DType::Int16:
      return store(out, static_cast<int16_t>(value));
    case DType::Int8:
      return store(out, static_cast<int8_t>(value));
    default:
      return store(out, static_cast<uint8_t>(value));
  }
}

double decode(DType dtype, const char* in) {
  uint16_t half;
  memcpy(&half, in, item_size(dtype) == 2 ? 2 : 0);
  switch (dtype) {
    case DType::Float64:
      return load<double>(in);
    case DType::Float32:
      return load<float>(in);
    case DType::BFloat16: {
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
    case DType::Float16: {
      const int exponent = half >> 10 & 31, mantissa = half & 1023;
      const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                          : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
      return half >> 15 ? -size : size;
    }
    case DType::Int64:
      return load<int64_t>(in);
    case DType::Int32:
      return load<int32_t>(in);
    case DType::Int16:
      return load<int16_t>(in);
    case DType::Int8:
      return load<int8_t>(in);
    default:
      return load<uint8_t>(in);
  }
}

// ---- memory ------------------------------------------------------------------------------------

Buffer::Buffer(const Rank& rank, DType dtype, int64_t count)
    : rank_(rank), dtype_(dtype), count_(count) {
  ErrorText error;
  void* made = nullptr;
  if (!rank.backend.allocate(rank.rank, bytes() + kBorder, &made, &error).ok()) {
    printf("allocation of %lld bytes failed: %s\n", static_cast<long long>(bytes()), error.text);
    _Exit(2);
  }
  data_ = static_cast<char*>(made);
  write([](int64_t) { return 1; });
}

Buffer::~Buffer() {
  rank_.synchronize();  // calls of this rank may still use the memory
  rank_.backend.release(rank_.rank, data_, bytes() + kBorder);
}

void Buffer::write(const std::function<double(int64_t)>& value) {
  std::vector<char> host(static_cast<size_t>(bytes() + kBorder), '\x5A');
  for (int64_t i = 0; i < count_; i++)
    encode(dtype_, value(i), host.data() + i * item_size(dtype_));
  rank_.backend.copy(rank_.stream, data_, host.data(), bytes() + kBorder, CopyKind::HostToDevice,
                     nullptr);
  rank_.synchronize();
}

void Buffer::expect(const std::string& label, const std::function<double(int64_t)>& value,
                    double slack) {
  std::vector<char> host(static_cast<size_t>(bytes() + kBorder));
  rank_.backend.copy(rank_.stream, host.data(), data_, bytes() + kBorder, CopyKind::DeviceToHost,
                     nullptr);
  rank_.synchronize();
  for (int64_t i = 0; i < count_; i++) {
    const double got = decode(dtype_, host.data() + i * item_size(dtype_)), wanted = value(i);
    if (std::fabs(got - wanted) <= slack) continue;
    check(false, rank_.rank, "%s %s: element %lld of %lld is %.9g, expected %.9g", label.c_str(),
          dtype_name(dtype_), static_cast<long long>(i), static_cast<long long>(count_), got,
          wanted);
    return;
  }
  for (int64_t i = bytes(); i < bytes() + kBorder; i++)
    if (!check(host[static_cast<size_t>(i)] == '\x5A', rank_.rank,
               "%s %s of %lld: wrote behind its output", label.c_str(), dtype_name(dtype_),
               static_cast<long long>(count_)))
      return;
}

}  // namespace selftest

int main(int count, char** arguments) {
  using namespace selftest;
  const auto given = [&](const char* word) {
    for (int i = 2; i < count; i++)
      if (std::strcmp(arguments[i], word) == 0) return true;
    return false;
  };
  const char* path = count > 1 ? arguments[1] : "build/Release/cuda-backend.so";
  void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto entry =
      opened ? reinterpret_cast<const Backend* (*)()>(dlsym(opened, "shardwise_backend_v1"))
             : nullptr;
  if (!entry) {
    printf("%s cannot be opened: %s\n", path, dlerror());
    return 2;
  }
  const Backend& backend = *entry();
  if (given("absent")) {
    test_absence(backend);
    return all_passed() ? 0 : 1;
  }
  int32_t ranks = backend.device_count();
  for (int i = 2; i < count; i++) std::sscanf(arguments[i], "ranks=%d", &ranks);
  if (ranks < 1 || ranks > backend.device_count()) {
    printf("%d ranks need as many GPUs, there are %d\n", ranks, backend.device_count());
    return 2;
  }
  printf("%d ranks of %s\n", ranks, backend.comm->name);
  if (given("leave")) {
    leave_without_destroy(backend, ranks);
    return all_passed() ? 0 : 1;
  }
  const bool some =
      given("values") || given("splits") || given("faults") || given("sums") || given("time");
  if (!some || given("values")) test_values(backend, ranks);
  if (!some || given("splits")) test_splits(backend, ranks);
  if (!some || given("faults")) {
    test_faults(backend, ranks);
    const std::string command = std::string("exec '") + arguments[0] + "' '" + path +
                                "' leave ranks=" + std::to_string(ranks);
    const double before = seconds();
    const int status = std::system(command.c_str());
    check(status == 0 && seconds() - before < 60, 0,
          "the process that leaves without destroy: status %d after %.1f s",
          WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), seconds() - before);
    end_test("a process ends without destroy");
  }
  if (given("sums")) test_sums(backend, ranks);
  if (given("time")) time_all(backend, ranks);
  return all_passed() ? 0 : 1;
}
