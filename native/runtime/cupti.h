// CUPTI, which times what a GPU does without changing its order. Opened where it is found; its
// headers are not needed. It belongs to the process, so one environment uses it at a time.
#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "span_log.h"
#include "spin_lock.h"

namespace shardwise {

class Cupti {
 public:
  static Cupti& get();

  // Opens the first of these paths that loads, one per line, and starts to record. "" on success,
  // else the reason why it cannot be used.
  std::string start(const char* candidates, const SpanLog* user);
  void stop(const SpanLog* user);
  // What a thread launches between these two belongs to the command.
  void begin(uint32_t command);
  void end();
  // Adds what has been recorded. The devices are done.
  void take(std::vector<Activity>* activities);

 private:
  using Result = int32_t;
  using Request = void (*)(uint8_t** buffer, size_t* size, size_t* records);
  using Complete = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size,
                            size_t valid);
  struct Functions {
    Result (*enable)(int32_t kind);
    Result (*disable)(int32_t kind);
    Result (*register_callbacks)(Request, Complete);
    Result (*flush_all)(uint32_t flag);
    Result (*next_record)(uint8_t* buffer, size_t valid, uint8_t** record);
    Result (*push)(int32_t kind, uint64_t id);
    Result (*pop)(int32_t kind, uint64_t* last);
    Result (*timestamp)(uint64_t* time);
    Result (*text)(Result result, const char** text);
  };
  struct Buffer {
    uint8_t* data;
    size_t valid;
  };
  // A moment by both clocks.
  struct Moment {
    double cupti = 0, host = 0;
  };

  std::string open(const char* candidates);
  std::string text_of(Result result) const;
  Moment now() const;
  double host_time(uint64_t time) const;
  void read(const Buffer& buffer, std::vector<Activity>* activities);
  void read_record(const uint8_t* record, std::vector<Activity>* activities);
  const char* name_of(const char* mangled);

  static void on_request(uint8_t** buffer, size_t* size, size_t* records);
  static void on_complete(void* context, uint32_t stream, uint8_t* buffer, size_t size,
                          size_t valid);

  void* library_ = nullptr;
  Functions api_{};
  const SpanLog* user_ = nullptr;
  std::mutex mutex_;
  SpinLock buffers_mutex_;
  std::vector<Buffer> buffers_;
  Moment started_, taken_;
  // While buffers are read: the command of a call of the driver, and what awaits its command.
  std::unordered_map<uint32_t, uint32_t> commands_;
  std::vector<uint32_t> correlations_;
  std::unordered_map<const char*, const char*> names_;
  std::set<std::string> texts_;
};

}  // namespace shardwise
