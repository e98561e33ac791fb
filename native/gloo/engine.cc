// The seam: what gloo and the standard library throw ends here.
#include <gloo/config.h>

#include "group.h"

namespace shardwise::across {
namespace {

template <class Work>
Status guarded(const char* what, ErrorText* error, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(error, Code::OutOfMemory, "%s: gloo: out of memory", what);
  } catch (const std::exception& failure) {
    return fail(error, Code::Peer, "%s: gloo: %s", what, plain(failure.what()).c_str());
  } catch (...) {
    return fail(error, Code::Peer, "%s: gloo failed and does not say why", what);
  }
}

template <class Work>
void quietly(Work work) {
  guarded("", nullptr, [&] {
    work();
    return kOk;
  });
}

Group& group_of(void* member) { return *static_cast<Group*>(member); }

const CommEngine kCommEngine = {
    "gloo",
    [](void* member, const CollectiveCall& call) {
      bool has_returned = false;
      const Status status = guarded(call.name, call.error, [&] {
        const Status result = group_of(member).run(call);
        has_returned = true;
        return result;
      });
      // What was thrown in the middle of a call has left the group in no known state.
      if (!has_returned) quietly([&] { group_of(member).abort(call.error->text); });
      return status;
    },
    [](void* member, const char* reason) { quietly([&] { group_of(member).abort(reason); }); },
    [](void*, ErrorText*) { return kOk; },  // every call waits for its result, and reports its own failure
    [](void* member, int64_t milliseconds) { group_of(member).set_timeout(milliseconds); },
    [](void* member) { quietly([&] { delete static_cast<Group*>(member); }); },
    nullptr,
};

Status listen(const char* host, int32_t rank, int32_t size, int64_t timeout_ms, void** world, char* addresses, ErrorText* error) {
  return guarded("initProcessGroup", error, [&] {
    auto made = std::make_unique<World>(device_of(host), rank, size, timeout_ms);
    made->addresses(addresses);
    *world = made.release();
    return kOk;
  });
}

Status connect(void* world, const char* addresses, ErrorText* error) {
  return guarded("initProcessGroup", error, [&] { return static_cast<World*>(world)->connect(addresses, error); });
}

Status join(void* world, const GlooGroup& group, void** member, ErrorText* error) {
  return guarded("newGroup", error, [&] {
    std::unique_ptr<Group> joined;
    const Status status = Group::join(*static_cast<World*>(world), group, &joined, error);
    *member = joined.release();
    return status;
  });
}

const GlooEngine kGlooEngine = {
    kGlooAbi,
    GLOO_VERSION,
    &kCommEngine,
    listen,
    connect,
    [](void* world) { quietly([&] { delete static_cast<World*>(world); }); },
    join,
    [](void* world, const GlooGroup& group) { quietly([&] { static_cast<World*>(world)->decline(group); }); },
};

}  // namespace
}  // namespace shardwise::across

extern "C" __attribute__((visibility("default"))) const shardwise::GlooEngine* shardwise_gloo_v1() { return &shardwise::across::kGlooEngine; }
