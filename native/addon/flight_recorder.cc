#include "flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "../comm/region.h"
#include "../platform/platform.h"
#include "json_lines.h"
#include "member.h"

namespace shardwise::flight {

namespace {

// A program that expects failures must not fill the disk.
constexpr size_t kMostFiles = 8;
constexpr size_t kPathBytes = 1024;

void write_shape(JsonLines& out, const char* key, const ShownShape& shape) {
  if (shape.count >= 0) out.list(key, shape.sizes, shape.count);
}

void write_entry(JsonLines& out, const Member& member, const FlightRecord::Entry& entry) {
  const comm::GroupInfo& group = member.group_info;
  out.number("rank", group.rank_at(member.rank)).text("group", group.name.c_str());
  out.number("sequence", static_cast<int64_t>(entry.sequence));
  out.text("op", entry.shown.name->c_str()).text("where", entry.shown.where->c_str());
  if (entry.kind != Collective::Barrier) out.text("dtype", dtype_name(entry.dtype));
  if (reduces(entry.kind)) out.text("reduce", reduce_name(entry.reduce));
  if (entry.root >= 0)
    out.number(is_message(entry.kind) ? "peer" : "root", group.rank_at(entry.root));
  write_shape(out, "input", entry.shown.in);
  write_shape(out, "output", entry.shown.out);
  if (!entry.shown.about->empty()) out.text("purpose", entry.shown.about->c_str());
  const int64_t end = entry.end_ns.load(std::memory_order_relaxed);
  out.time("start", entry.start_ns);
  if (end == 0)
    out.text("end", "not finished");
  else
    out.time(member.devices ? "launched" : "end", end);
  out.end_line();
}

// The last call of a rank of another process of this machine, which may no longer write a file.
void write_peer(JsonLines& out, comm::Region& region, int32_t place) {
  comm::CallRecord record;
  const bool is_device = region.has_watchdogs();
  if (!(is_device ? region.watchdog(place).last : region.rank(place).record).read(&record)) return;
  const comm::GroupInfo& group = region.group_info();
  out.number("rank", group.rank_at(place)).text("group", group.name.c_str());
  if (record.print.call > 0) out.number("sequence", static_cast<int64_t>(record.print.call));
  out.text("op", record.site.name).text("where", record.site.where);
  if (record.print.dtype >= 0)
    out.text("dtype", dtype_name(static_cast<DType>(record.print.dtype)));
  if (record.peer >= 0) out.number("peer", group.rank_at(record.peer));
  if (record.about[0] != 0) out.text("purpose", record.about);
  const bool inside = region.rank(place).in_call.load(std::memory_order_acquire) != 0;
  out.text("end", is_device ? "launched" : inside ? "not finished" : "finished");
  out.text("seen", "in the memory that the ranks share").end_line();
}

// One file of the process, in a folder that the processes of a program share.
class Folder {
 public:
  // Null by SHARDWISE_FLIGHT_RECORD=off. A copy: the program may change its environment.
  static const char* parent() {
    const char* chosen = choose();
    return chosen ? strdup(chosen) : nullptr;
  }

  // Opens a new file, and writes its path; -1 without success.
  static int create(const char* parent, const char* name, char (&path)[kPathBytes]) {
    platform::make_folder(parent);
    snprintf(path, sizeof path, "%s/shardwise-failure-%s", parent, name);
    char file[32];
    snprintf(file, sizeof file, "/%d.jsonl", static_cast<int>(getpid()));
    if (strlen(path) + strlen(file) >= sizeof path) return -1;
    const int opened = platform::create_private_file(path, file + 1);
    if (opened >= 0) strcat(path, file);
    return opened;
  }

 private:
  static const char* choose() {
    const char* given = getenv("SHARDWISE_FLIGHT_RECORD");
    if (given && *given) return strcmp(given, "off") == 0 ? nullptr : given;
    for (const char* name : {"TMPDIR", "TMP", "TEMP"})
      if (const char* folder = getenv(name); folder && *folder) return folder;
    return "/tmp";
  }
};

class Recorder {
 public:
  static Recorder& of_process() {
    static auto* created = new Recorder;  // lives as long as the process
    return *created;
  }

  void add(Member& member) {
    const std::lock_guard<std::mutex> lock(mutex_);
    members_.push_back(&member);
    if (member.size > 1 && parent_) catch_signals();
  }
  void remove(Member& member) {
    const std::lock_guard<std::mutex> lock(mutex_);
    members_.erase(std::remove(members_.begin(), members_.end(), &member), members_.end());
  }

  void write(ErrorText& failure) {
    const uint64_t id = with_id(failure).details.id;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!parent_ || files_.size() == kMostFiles || find(id)) return;
    char name[24], path[kPathBytes];
    snprintf(name, sizeof name, "%014llx", static_cast<unsigned long long>(id));
    const int file = Folder::create(parent_, name, path);
    if (file < 0) return;
    write_calls(file, failure.text, false);
    close(file);
    files_.push_back({id, path});
  }

  std::string path_of(uint64_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const File* found = find(id);
    return found ? found->path : "";
  }

 private:
  struct File {
    uint64_t id;
    std::string path;
  };

  const File* find(uint64_t id) const {
    for (const File& file : files_)
      if (file.id == id) return &file;
    return nullptr;
  }

  void write_calls(int file, const char* failure, bool at_once) {
    JsonLines out(file);
    out.text("failure", failure).number("process", getpid()).end_line();
    for (Member* member : members_) {
      const auto write = [&](const FlightRecord::Entry& entry) {
        write_entry(out, *member, entry);
      };
      member->record.visit(at_once, write);
      member->visit_memory(at_once, [&](comm::Region& region) {
        for (int32_t place = 0; place < region.size() && region.shared(); place++)
          if (place != member->rank) write_peer(out, region, place);
      });
    }
  }

  void catch_signals() {
    if (catches_) return;
    catches_ = true;
    platform::at_fatal_signal([](int signal) { of_process().write_at_signal(signal); });
  }

  void write_at_signal(int signal) {
    if (ended_.test_and_set() || !mutex_.try_lock()) return;
    char name[48], text[48], path[kPathBytes];
    snprintf(name, sizeof name, "signal-%d-%d", signal, static_cast<int>(getpid()));
    snprintf(text, sizeof text, "signal %d", signal);
    const int file = Folder::create(parent_, name, path);
    if (file >= 0) {
      write_calls(file, text, true);
      close(file);
      char line[kPathBytes + 64];
      const int length =
          snprintf(line, sizeof line, "shardwise: signal %d. The last collectives are in %s\n",
                   signal, path);
      if (::write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) return;
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<Member*> members_;
  std::vector<File> files_;
  const char* const parent_ = Folder::parent();
  bool catches_ = false;
  std::atomic_flag ended_;
};

}  // namespace

void add(Member& member) { Recorder::of_process().add(member); }
void remove(Member& member) { Recorder::of_process().remove(member); }
void write(ErrorText& failure) { Recorder::of_process().write(failure); }
std::string path_of(uint64_t failure) {
  return failure == 0 ? "" : Recorder::of_process().path_of(failure);
}

}  // namespace shardwise::flight
