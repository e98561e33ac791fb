// Messages between two ranks, through the ring of chunks of the pair.
#include <algorithm>
#include <cstring>

#include "host_group.h"
#include "messages.h"

namespace shardwise::comm {
namespace {

int64_t chunks_of(int64_t bytes, int64_t chunk_bytes) {
  return std::max<int64_t>(1, (bytes + chunk_bytes - 1) / chunk_bytes);
}

}  // namespace

Status HostGroup::send(const void* data, int64_t bytes, int32_t to, const CallSite& site,
                       ErrorText* error) {
  Status status = begin_message(Kind::Send, bytes, to, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  Channel& channel = region_->channel(rank_, to);
  const int64_t chunk = region_->chunk_bytes();
  for (int64_t i = 0; i < chunks_of(bytes, chunk); i++) {
    const uint32_t number = channel.written.value.load(std::memory_order_relaxed);
    status = wait(channel.taken, number + 1 - kChannelChunks, to, error);
    if (!status.ok()) return status;
    if (i == 0) channel.labels[number % kChannelChunks] = {{bytes, site.dtype}, record_.site};
    const int64_t share = std::min(chunk, bytes - i * chunk);
    if (share > 0)
      memcpy(region_->chunk(rank_, to, number), static_cast<const char*>(data) + i * chunk,
             static_cast<size_t>(share));
    advance(channel.written, number + 1, region_->shared());
  }
  return kOk;
}

Status HostGroup::receive(void* data, int64_t bytes, int32_t from, const CallSite& site,
                          ErrorText* error) {
  Status status = begin_message(Kind::Receive, bytes, from, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  Channel& channel = region_->channel(from, rank_);
  const int64_t chunk = region_->chunk_bytes();
  for (int64_t i = 0; i < chunks_of(bytes, chunk); i++) {
    const uint32_t number = channel.taken.value.load(std::memory_order_relaxed);
    status = wait(channel.written, number + 1, from, error);
    if (!status.ok()) return status;
    const Channel::Label& label = channel.labels[number % kChannelChunks];
    const Load expected{bytes, site.dtype};
    if (i == 0 && !(label.load == expected)) {
      ErrorText message;
      Text text(message);
      describe_misfit(text, group_info(), from, label.load, label.site, rank_, expected,
                      record_.site);
      return refuse_mismatch(message, message, error);
    }
    const int64_t share = std::min(chunk, bytes - i * chunk);
    if (share > 0)
      memcpy(static_cast<char*>(data) + i * chunk, region_->chunk(from, rank_, number),
             static_cast<size_t>(share));
    advance(channel.taken, number + 1, region_->shared());
  }
  return kOk;
}

}  // namespace shardwise::comm
