// What the parts of the self-test share: ranks as threads or as processes, and a plain count of
// what failed.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../host_group.h"

namespace shardwise {
struct GlooEngine;
}

namespace shardwise::comm::selftest {

enum class Ranks { Threads, Processes };

// A failed check prints its place; the group (and in a rank's process the exit code) remembers.
#define CHECK(condition, ...) \
  ::shardwise::comm::selftest::check((condition), __FILE__, __LINE__, __VA_ARGS__)
__attribute__((format(printf, 4, 5))) bool check(bool condition, const char* file, int line,
                                                 const char* format, ...);

// Prints PASS or FAIL for all checks since the last call.
void end_group(const char* name);
bool has_failed_checks();
bool all_passed();

struct Options {
  int64_t slot_bytes = 4096;  // so that chunks are many
  int64_t timeout_ms = 20'000;
  Use use = Use::World;
  Roster roster = {};
  // Called in the parent while the ranks run; processes only.
  std::function<void(const std::vector<int>& pids)> meanwhile = nullptr;
  uint64_t killed = 0;  // ranks whose end is not an error
};

using Body = std::function<void(HostGroup& group)>;
void run_ranks(Ranks mode, int32_t size, const Options& options, const Body& body);

// Deterministic: every rank can make every other's data.
std::vector<char> random_values(DType dtype, int64_t count, uint64_t seed);
std::vector<char> random_bytes(int64_t bytes, uint64_t seed);
std::vector<char> reference_reduce(const std::vector<std::vector<char>>& inputs, DType dtype,
                                   Reduce reduce);
// any NaN is as good as any other
bool same_values(const char* a, const char* b, DType dtype, int64_t count);

// What processes tell each other beside the group: made before they are forked.
struct Board {
  std::atomic<int> ready, done;
};
Board* new_board();
bool wait_for(const std::atomic<int>& count, int target);  // up to 10 s

// Names for segments, and how many files of /dev/shm have one of them.
std::string segment_name();
int segments_left();

void test_reductions(Ranks mode);
void test_moves(Ranks mode);
void test_borders(Ranks mode);
void test_messages(Ranks mode);
void test_order(Ranks mode);
void test_disagreement(Ranks mode);
void test_absence(Ranks mode);
void test_watch(Ranks mode);
void test_processes();
void test_segments();
void test_connecting(const GlooEngine* gloo);
bool test_far(const char* library);  // gloo-engine.so; false where it cannot be opened
void bench(Ranks mode, int32_t size);
void bench_watch(int32_t size);

}  // namespace shardwise::comm::selftest
