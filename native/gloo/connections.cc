#include "connections.h"

#include "../comm/messages.h"
#include "own_pair.h"

namespace shardwise::gloo_engine {

Connections::Connections(const char* host, int32_t rank, int32_t size)
    : mesh_(std::make_unique<FullMesh>(host, rank, size)), context_(OwnContext::make(rank, size)) {}

bool Connections::is_sent(Buffer& buffer) { return static_cast<OwnBuffer&>(buffer).is_sent(); }

Status Connections::connect(const char* addresses, int64_t timeout_ms, const comm::GroupInfo& group,
                            const char* hint, ErrorText* error) {
  FullMesh::Failure failure;
  if (mesh_->connect(addresses, timeout_ms, &failure)) {
    for (int32_t other = 0; other < size(); other++) {
      if (other != rank())
        static_cast<OwnContext&>(*context_).pair(other).adopt(mesh_->take(other),
                                                              mesh_->endpoint(other));
    }
    mesh_.reset();
    return kOk;
  }
  mesh_.reset();
  ErrorText message;
  Text text(message);
  text.add("group \"%s\" cannot connect: ", group.name.c_str());
  comm::Missing missing;
  for (const int32_t rank : failure.culprits) missing.add(rank, failure.what.c_str());
  if (missing.empty())
    text.add("%s", failure.what.c_str());
  else
    missing.describe(text, group);
  if (failure.is_timeout) text.add("%s", hint);
  comm::DetailsWriter details(group);
  missing.blame(details);
  details.add_to(text);
  return fail_with(error, Code::Peer, message);
}

}  // namespace shardwise::gloo_engine
