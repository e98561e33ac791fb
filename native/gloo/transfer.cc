// Bytes between ranks, in chunks: who gets one within the timeout goes on waiting.
#include "../comm/messages.h"
#include "group.h"
#include "slots.h"

namespace shardwise::across {

Status Group::transfer(const Step& step, int64_t above, ErrorText* error) {
  std::vector<std::unique_ptr<Buffer>> in(step.received.size()), out(step.sent.size());
  Status status;
  for_peers([&](int32_t other) {
    const Step::Piece& piece = step.received[other];
    if (!status.ok() || piece.bytes <= above) return;
    in[other] = connections_->buffer(piece.data, piece.bytes);
    status = receive_all(*in[other], other, kDataSlot, piece.bytes, error);
  });
  for_peers([&](int32_t other) {
    const Step::Piece& piece = step.sent[other];
    if (!status.ok() || piece.bytes <= above) return;
    out[other] = connections_->buffer(piece.data, piece.bytes);
    status = send_all(*out[other], other, kDataSlot, piece.bytes, error);
  });
  for_peers([&](int32_t other) {
    if (status.ok() && in[other])
      status = finish(*in[other], Way::Receive, other, step.received[other].bytes, error);
  });
  for_peers([&](int32_t other) {
    if (status.ok() && out[other])
      status = finish(*out[other], Way::Send, other, step.sent[other].bytes, error);
  });
  // Last words go before the buffers: the others take what is in front of them only while they are
  // there.
  if (!status.ok()) flush(kGraceMs, false);
  return status;
}

Status Group::receive_all(Buffer& buffer, int32_t from, uint64_t slot, int64_t bytes,
                          ErrorText* error) {
  Status status;
  for (int64_t at = 0; status.ok() && at < bytes; at += kChunkBytes) {
    status = post(buffer, Way::Receive, from, slot, at, std::min(kChunkBytes, bytes - at), error);
  }
  return status;
}

Status Group::send_all(Buffer& buffer, int32_t to, uint64_t slot, int64_t bytes, ErrorText* error) {
  Status status;
  for (int64_t at = 0; status.ok() && at < bytes; at += kChunkBytes) {
    status = post(buffer, Way::Send, to, slot, at, std::min(kChunkBytes, bytes - at), error);
  }
  return status;
}

Status Group::finish(Buffer& buffer, Way way, int32_t peer, int64_t bytes, ErrorText* error) {
  Status status;
  for (int64_t at = 0; status.ok() && at < bytes; at += kChunkBytes)
    status = wait(buffer, way, peer, error);
  return status;
}

Status Group::post(Buffer& buffer, Way way, int32_t peer, uint64_t slot, int64_t offset,
                   int64_t bytes, ErrorText* error) {
  try {
    if (way == Way::Receive)
      buffer.recv(peer, slot, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    else
      buffer.send(peer, slot, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    return kOk;
  } catch (const std::exception& failure) {
    hear();
    return failed() ? cause(error) : report_gone(peer, plain(failure.what()), error);
  }
}

Status Group::wait(Buffer& buffer, Way way, int32_t peer, ErrorText* error) {
  comm::Patience patience(timeout_ms());
  std::string why;
  // Who has left may have sent it before: looked for once more when that is known.
  for (bool is_gone_already = false;;) {
    const Waited waited = wait_a_moment(buffer, way, &why);
    if (waited == Waited::Done) return kOk;
    if (!is_gone_already && !failed() && waited == Waited::Interrupted && is_gone(peer, &why)) {
      is_gone_already = true;
      continue;
    }
    Status status = look(peer, error);
    if (!status.ok()) return status;
    if (waited == Waited::Broken) return report_gone(peer, why, error);
    status = go_on_waiting({peer}, patience, error);
    if (!status.ok()) return status;
  }
}

}  // namespace shardwise::across
