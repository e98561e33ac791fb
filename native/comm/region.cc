#include "region.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "compilation.h"
#include "deadline.h"
#include "messages.h"
#include "segment.h"

namespace shardwise::comm {
namespace {

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

Status check_size(int32_t size, ErrorText* error) {
  if (size >= 1 && size <= kMaxRanks) return kOk;
  return fail(error, Code::Invalid, "a group of one host has 1 to %d ranks, not %d", kMaxRanks,
              size);
}

// Tensors pass in chunks of a slot. A chunk should fit caches (1 MiB is slower than 256 KiB), and
// containers often have 64 MiB of /dev/shm for all groups of a program.
int64_t slots_for(Use use, int32_t size, int64_t wanted) {
  constexpr int64_t least = kMaxRanks * kAlign;  // a line for each rank
  const auto share = [size](int64_t slot, int64_t all) { return std::min(slot, all / (2 * size)); };
  if (wanted <= 0)
    wanted = use == Use::World      ? share(512 << 10, 16 << 20)
             : use == Use::Subgroup ? share(256 << 10, 4 << 20)
                                    : least;
  return round_up(std::max(wanted, least), kAlign);
}

Status describe_no_room(const SegmentOptions& options, int64_t bytes, ErrorText* error) {
  ErrorText why = *error;
  const platform::MemorySize room = platform::shared_room();
  if (room.total == 0) return fail_with(error, Code::OutOfMemory, why);
  const auto in_mib = [](int64_t size) { return static_cast<double>(size) / (1 << 20); };
  return fail(error, Code::OutOfMemory,
              "group \"%s\" of %d ranks needs %.1f MiB of shared memory, and %s has %.1f of its "
              "%.1f MiB left (%s). %s",
              options.group_info.name.c_str(), options.size, in_mib(bytes),
              platform::shared_folder(), in_mib(room.free), in_mib(room.total), why.text,
              platform::kMoreSharedMemory);
}

// Fails because rank 0, which creates the memory, did not.
Status without_maker(const SegmentOptions& options, const char* why, ErrorText* error) {
  ErrorText message;
  Text text(message);
  text.add("%s", why);
  DetailsWriter details(options.group_info);
  details.blame(0, nullptr);
  details.add_to(text);
  return fail_with(error, Code::Device, message);
}

}  // namespace

Region::Plan Region::plan(int32_t size, int64_t slot_bytes, Use use) {
  constexpr int64_t page = 4096;
  const int64_t all_chunks = use == Use::World ? 8 << 20 : use == Use::Subgroup ? 2 << 20 : 0;
  Plan plan = {};
  plan.slot_bytes = slot_bytes;
  const int64_t pairs = int64_t{size} * size;
  plan.chunk_bytes = std::clamp<int64_t>(all_chunks / pairs / kChannelChunks / kAlign * kAlign,
                                         4 * kAlign, 64 << 10);
  plan.ranks = round_up(sizeof(Header), kAlign);
  plan.channels = plan.ranks + size * static_cast<int64_t>(sizeof(RankBlock));
  plan.slots = round_up(plan.channels + pairs * static_cast<int64_t>(sizeof(Channel)), page);
  plan.chunks = round_up(plan.slots + size * 2 * plan.slot_bytes, page);
  const int64_t end = plan.chunks + pairs * kChannelChunks * plan.chunk_bytes;
  if (use == Use::Rendezvous) plan.watchdogs = round_up(end, kAlign);
  if (use == Use::World) plan.registries = round_up(end, kAlign);
  plan.total =
      use == Use::Rendezvous ? plan.watchdogs + size * static_cast<int64_t>(sizeof(WatchdogBlock))
      : use == Use::World    ? plan.registries + size * static_cast<int64_t>(sizeof(GroupRegistry))
                             : end;
  return plan;
}

// New memory is zero, which is the initial state of everything else.
void Region::prepare() {
  header().size = size_;
  header().slot_bytes = plan_.slot_bytes;
  header().use = use_;
  header().creator = platform::this_process();
}

Status Region::in_process(int32_t size, int64_t slot_bytes, std::shared_ptr<Region>* out,
                          ErrorText* error, Use use, GroupInfo group_info) {
  if (const Status checked = check_size(size, error); !checked.ok()) return checked;
  const Plan planned = plan(size, slots_for(use, size, slot_bytes), use);
  void* base = platform::map_sparse_memory(planned.total);
  if (!base)
    return fail(error, Code::OutOfMemory, "memory for a group of %d ranks cannot be had", size);
  out->reset(new Region(base, size, planned, use, false, std::move(group_info)));
  (*out)->prepare();
  return kOk;
}

Status Region::between_processes(const SegmentOptions& options, std::shared_ptr<Region>* out,
                                 ErrorText* error) {
  if (const Status checked = check_size(options.size, error); !checked.ok()) return checked;
  if (options.rank < 0 || options.rank >= options.size) {
    return fail(error, Code::Invalid, "rank %d is not of a group of %d", options.rank,
                options.size);
  }
  return options.rank == 0 ? create(options, out, error) : attach(options, out, error);
}

Status Region::create(const SegmentOptions& options, std::shared_ptr<Region>* out,
                      ErrorText* error) {
  const Plan planned =
      plan(options.size, slots_for(options.use, options.size, options.slot_bytes), options.use);
  platform::SharedFile file;
  char path[kSegmentPath];
  const Status made =
      create_segment(options.name, options.token, planned.total, &file, path, error);
  if (made.code == Code::OutOfMemory) return describe_no_room(options, planned.total, error);
  if (!made.ok()) return made;
  void* base = platform::map_shared(file, planned.total);
  if (!base) {
    unlink_segment(path, file);
    platform::close_shared(file);
    return fail(error, Code::OutOfMemory, "shared memory %s cannot be mapped", path);
  }
  out->reset(new Region(base, options.size, planned, options.use, true, options.group_info));
  Region& region = **out;
  region.file_ = file;
  region.timeout_ms_ = std::min(options.timeout_ms, kLongestTimeoutMs);
  memcpy(region.path_, path, sizeof region.path_);
  region.prepare();
  region.header().token = options.token;
  region.header().magic.store(kSegmentMagic, std::memory_order_release);
  return kOk;
}

Status Region::attach(const SegmentOptions& options, std::shared_ptr<Region>* out,
                      ErrorText* error) {
  const int32_t first = options.group_info.rank_at(0);
  Region* world = options.origin != nullptr ? options.origin->region.get() : nullptr;
  std::optional<Compilations> compilations;
  if (world != nullptr)
    compilations.emplace(*world, world, options.group_info, options.size, options.rank);
  Deadline deadline(options.timeout_ms);
  platform::SharedFile file;
  char path[kSegmentPath];
  for (int64_t pause_us = 100; !(file = find_segment(options.name, options.token, path)).ok();
       pause_us = std::min<int64_t>(10'000, pause_us * 2)) {
    if (deadline.left(!(compilations && compilations->delay(1))) <= 0) {
      const auto limit = static_cast<long long>(options.timeout_ms);
      ErrorText late;
      Text(late).add(
          "join: rank %d has not joined group \"%s\" (timeout after %lld ms): there is no shared "
          "memory %s",
          first, options.group_info.name.c_str(), limit, options.name);
      return without_maker(options, late.text, error);
    }
    ErrorText why;
    if (options.origin && options.origin->keeps_away(options.group_info, 0, options.rank, &why)) {
      ErrorText gone;
      Text(gone).add("join: rank %d %s", first, why.text);
      return without_maker(options, gone.text, error);
    }
    if (options.origin && options.origin->has_given_up && options.origin->has_given_up(error))
      return Status{Code::Peer};
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
  }
  const int64_t bytes = platform::shared_bytes(file);
  void* base = bytes < 0 ? nullptr : platform::map_shared(file, bytes);
  if (!base) {
    platform::close_shared(file);
    return fail(error, Code::OutOfMemory, "shared memory %s cannot be mapped", path);
  }
  const Header& header = *static_cast<const Header*>(base);
  const int32_t made_for = header.size;
  const Plan planned = plan(made_for, header.slot_bytes, header.use);
  if (made_for != options.size || planned.total != bytes) {
    platform::unmap_shared(base, bytes);
    platform::close_shared(file);
    return fail(error, Code::Invalid, "rank %d made a group of %d ranks, rank %d wants one of %d",
                first, made_for, options.group_info.rank_at(options.rank), options.size);
  }
  out->reset(new Region(base, options.size, planned, options.use, true, options.group_info));
  (*out)->file_ = file;
  (*out)->timeout_ms_ = std::min(options.timeout_ms, kLongestTimeoutMs);
  memcpy((*out)->path_, path, sizeof path);
  return kOk;
}

void Region::count_joined() {
  Counter& joined = header().joined;
  // All ranks have joined, so no other rank needs the name.
  if (joined.value.fetch_add(1, std::memory_order_seq_cst) + 1 == static_cast<uint32_t>(size_) &&
      file_.ok())
    unlink_segment(path_, file_);
  wake(joined, shared_);
}

Region::~Region() {
  if (file_.ok()) {
    // The group failed before all ranks joined: late ranks must not find it.
    if (header().joined.value.load(std::memory_order_acquire) < static_cast<uint32_t>(size_))
      unlink_segment(path_, file_);
    platform::close_shared(file_);
  }
  if (shared_)
    platform::unmap_shared(base_, plan_.total);
  else
    platform::unmap_memory(base_, plan_.total);
}

}  // namespace shardwise::comm
