// Messages between two ranks, in order. A short one is sent at once; a long one is sent when the
// receiver has read its label.
#include "../comm/messages.h"

#include <cstring>

#include "group.h"
#include "slots.h"

namespace shardwise::gloo_engine {
namespace {

struct Label {
  comm::Load load;
  comm::Site site;
};

// Messages that a receiver has not taken: a sender may be so many ahead.
constexpr size_t kMostParcels = 8;

}  // namespace

Status Group::send(const CollectiveCall& call) {
  const int64_t bytes = call.count * item_size(call.dtype);
  const int32_t to = call.root;
  Status status = begin_message(comm::Kind::Send, call, bytes);
  if (!status.ok()) return status;
  std::deque<Parcel>& parcels = peer(to).parcels;
  if (parcels.size() == kMostParcels) {
    status = wait(*parcels.front().buffer, Direction::Send, to, call.error);
    if (!status.ok()) return status;
    parcels.pop_front();
  }
  const bool is_short = bytes <= kParcelBytes;
  const Label label{{bytes, comm::site_of(call).dtype}, record_.site};
  Parcel& parcel = parcels.emplace_back();
  parcel.data.resize(sizeof label + static_cast<size_t>(is_short ? bytes : 0));
  memcpy(parcel.data.data(), &label, sizeof label);
  if (is_short && bytes > 0)
    memcpy(parcel.data.data() + sizeof label, call.in, static_cast<size_t>(bytes));
  const auto length = static_cast<int64_t>(parcel.data.size());
  parcel.buffer = connections_->buffer(parcel.data.data(), length);
  status = post(*parcel.buffer, Direction::Send, to, kMessageSlot, 0, length, call.error);
  if (!status.ok() || is_short) return status;
  const auto data = connections_->buffer(const_cast<void*>(call.in), bytes);
  status = send_all(*data, to, kMessageDataSlot, bytes, call.error);
  if (status.ok()) status = finish(*data, Direction::Send, to, bytes, call.error);
  if (!status.ok()) flush(kGraceMs, false);
  return status;
}

Status Group::receive(const CollectiveCall& call) {
  const int64_t bytes = call.count * item_size(call.dtype);
  const int32_t from = call.root;
  Status status = begin_message(comm::Kind::Receive, call, bytes);
  if (!status.ok()) return status;
  constexpr auto kLongest = static_cast<int64_t>(sizeof(Label)) + kParcelBytes;
  char* message = message_.of(kLongest);
  const auto parcel = connections_->buffer(message, kLongest);
  status = post(*parcel, Direction::Receive, from, kMessageSlot, 0, kLongest, call.error);
  if (status.ok()) status = wait(*parcel, Direction::Receive, from, call.error);
  if (!status.ok()) return status;
  Label label;
  memcpy(&label, message, sizeof label);
  const comm::Load expected{bytes, comm::site_of(call).dtype};
  if (!(label.load == expected)) {
    ErrorText text;
    Text misfit(text);
    comm::describe_misfit(misfit, group_info_, from, label.load, label.site, rank_, expected,
                          record_.site);
    return refuse_mismatch(text, text, call.error);
  }
  if (bytes <= kParcelBytes) {
    if (bytes > 0) memcpy(call.out, message + sizeof label, static_cast<size_t>(bytes));
    return kOk;
  }
  const auto data = connections_->buffer(call.out, bytes);
  status = receive_all(*data, from, kMessageDataSlot, bytes, call.error);
  if (status.ok()) status = finish(*data, Direction::Receive, from, bytes, call.error);
  if (!status.ok()) flush(kGraceMs, false);
  return status;
}

}  // namespace shardwise::gloo_engine
