// Shared by the files of the self-test: runs ranks as threads or processes, and counts failed
// checks.
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

// A failed check prints its place and fails its group (and the exit code of a rank's process).
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
  GroupInfo group_info = {};
  // Called in the parent while the ranks run; processes only.
  std::function<void(const std::vector<int>& pids)> meanwhile = nullptr;
  uint64_t killed = 0;  // ranks whose end is not an error
};

using Body = std::function<void(HostGroup& group)>;
void run_ranks(Ranks mode, int32_t size, const Options& options, const Body& body);

// Deterministic: every rank can compute the data of every other rank.
std::vector<char> random_values(DType dtype, int64_t count, uint64_t seed);
std::vector<char> random_bytes(int64_t bytes, uint64_t seed);
std::vector<char> reference_reduce(const std::vector<std::vector<char>>& inputs, DType dtype,
                                   Reduce reduce);
// all NaN are equal
bool same_values(const char* a, const char* b, DType dtype, int64_t count);

// Shared by processes beside the group; created before the fork.
struct Progress {
  std::atomic<int> ready, done;
};
Progress* new_progress();
bool wait_for(const std::atomic<int>& count, int target);  // up to 10 s

// Names for segments, and the number of files in /dev/shm with such a name.
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
bool test_remote(const char* library);  // gloo-engine.so; false where it cannot be opened
void bench(Ranks mode, int32_t size);
void bench_watch(int32_t size);

}  // namespace shardwise::comm::selftest
