// Transfers bytes between ranks in chunks: a rank that gets a chunk within the timeout continues to
// wait.
#include "../comm/messages.h"
#include "group.h"
#include "slots.h"

namespace shardwise::gloo_engine {

Status Group::transfer(const Step& step, int64_t above, ErrorText* error) {
  std::vector<std::unique_ptr<Buffer>> in(step.received.size()), out(step.sent.size());
  Status status;
  for_peers([&](int32_t other) {
    const Step::Span& span = step.received[other];
    if (!status.ok() || span.bytes <= above) return;
    in[other] = connections_->buffer(span.data, span.bytes);
    status = receive_all(*in[other], other, kDataSlot, span.bytes, error);
  });
  for_peers([&](int32_t other) {
    const Step::Span& span = step.sent[other];
    if (!status.ok() || span.bytes <= above) return;
    out[other] = connections_->buffer(span.data, span.bytes);
    status = send_all(*out[other], other, kDataSlot, span.bytes, error);
  });
  for_peers([&](int32_t other) {
    if (status.ok() && in[other])
      status = finish(*in[other], Direction::Receive, other, step.received[other].bytes, error);
  });
  for_peers([&](int32_t other) {
    if (status.ok() && out[other])
      status = finish(*out[other], Direction::Send, other, step.sent[other].bytes, error);
  });
  // The final message must precede the end of the buffers: the others take data before it only
  // while the buffers exist.
  if (!status.ok()) flush(kGraceMs, false);
  return status;
}

Status Group::receive_all(Buffer& buffer, int32_t from, uint64_t slot, int64_t bytes,
                          ErrorText* error) {
  Status status;
  for (int64_t at = 0; status.ok() && at < bytes; at += kChunkBytes) {
    status =
        post(buffer, Direction::Receive, from, slot, at, std::min(kChunkBytes, bytes - at), error);
  }
  return status;
}

Status Group::send_all(Buffer& buffer, int32_t to, uint64_t slot, int64_t bytes, ErrorText* error) {
  Status status;
  for (int64_t at = 0; status.ok() && at < bytes; at += kChunkBytes) {
    status = post(buffer, Direction::Send, to, slot, at, std::min(kChunkBytes, bytes - at), error);
  }
  return status;
}

Status Group::finish(Buffer& buffer, Direction direction, int32_t peer, int64_t bytes,
                     ErrorText* error) {
  Status status;
  for (int64_t at = 0; status.ok() && at < bytes; at += kChunkBytes)
    status = wait(buffer, direction, peer, error);
  return status;
}

Status Group::post(Buffer& buffer, Direction direction, int32_t peer, uint64_t slot, int64_t offset,
                   int64_t bytes, ErrorText* error) {
  try {
    if (direction == Direction::Receive)
      buffer.recv(peer, slot, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    else
      buffer.send(peer, slot, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    return kOk;
  } catch (const std::exception& failure) {
    observe_peers();
    return failed() ? cause(error) : report_gone(peer, plain(failure.what()), error);
  }
}

Status Group::wait(Buffer& buffer, Direction direction, int32_t peer, ErrorText* error) {
  comm::Deadline deadline(timeout_ms());
  std::string why;
  // A rank that left may have sent the data before: check once more.
  for (bool is_gone_already = false;;) {
    const Waited waited = wait_a_moment(buffer, direction, &why);
    if (waited == Waited::Done) return kOk;
    if (!is_gone_already && !failed() && waited == Waited::Interrupted && is_gone(peer, &why)) {
      is_gone_already = true;
      continue;
    }
    Status status = check_peer(peer, error);
    if (!status.ok()) return status;
    if (waited == Waited::Broken) return report_gone(peer, why, error);
    status = go_on_waiting({peer}, deadline, error);
    if (!status.ok()) return status;
  }
}

}  // namespace shardwise::gloo_engine
