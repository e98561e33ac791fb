// Fills the seam. Exceptions of gloo and the standard library end here.
#include <gloo/config.h>

#include <system_error>

#include "../comm/compilation.h"
#include "../include/start_thread.h"
#include "group.h"

namespace shardwise::gloo_engine {
namespace {

template <class Work>
Status guarded(const char* what, ErrorText* error, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(error, Code::OutOfMemory, "%s: gloo: out of memory", what);
  } catch (const std::system_error&) {  // gloo's own errors are of other classes
    return fail(error, Code::Peer, "%s: gloo: %s", what, kNoThread);
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

// Runs `work` of a call. An exception in its middle leaves the group in an unknown state, so the
// group fails.
template <class Work>
Status in_call(void* member, const char* name, ErrorText* error, Work work) {
  bool has_returned = false;
  const Status status = guarded(name, error, [&] {
    const Status result = work(group_of(member));
    has_returned = true;
    return result;
  });
  if (!has_returned) quietly([&] { group_of(member).give_up(*error); });
  return status;
}

const CommEngine kCommEngine = {
    "gloo",
    [](void* member, const CollectiveCall& call) {
      return in_call(member, call.name, call.error, [&](Group& group) { return group.run(call); });
    },
    [](void* member, const ErrorText& reason) {
      quietly([&] { group_of(member).fail_all(Code::Closed, reason); });
    },
    // every call waits for its result and reports its own failure
    [](void*, ErrorText*) { return kOk; },
    [](void* member, int64_t milliseconds) { group_of(member).set_timeout(milliseconds); },
    [](void* member) { quietly([&] { delete static_cast<Group*>(member); }); },
    nullptr,
};

Status listen(const char* host, int32_t rank, int32_t size, int64_t timeout_ms, void** world,
              char* addresses, ErrorText* error) {
  return guarded("initProcessGroup", error, [&] {
    auto made = std::make_unique<World>(host, rank, size, timeout_ms);
    made->addresses(addresses);
    *world = made.release();
    return kOk;
  });
}

Status connect(void* world, const char* addresses, ErrorText* error) {
  return guarded("initProcessGroup", error,
                 [&] { return static_cast<World*>(world)->connect(addresses, error); });
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
    [](void* world, const GlooGroup& group, int32_t place, const char* reason) {
      quietly([&] { static_cast<World*>(world)->decline(group, place, reason); });
    },
    [](void* member, const CollectiveCall& call, uint64_t number) {
      return in_call(member, call.name, call.error,
                     [&](Group& group) { return group.compare(call, number); });
    },
    [](void* member, ErrorText* failure, ErrorText* error) {
      return in_call(member, "a look at the other ranks", error,
                     [&](Group& group) { return group.poll_peers(failure, error); });
    },
    [](void* member) { quietly([&] { group_of(member).end(); }); },
    [](void* member, Code code, const ErrorText& cause) {
      quietly([&] { group_of(member).fail_all(code, cause); });
    },
    [](void* world, const char* what, bool is_own, int64_t limit_ms) {
      quietly([&] {
        const comm::Compilation begun =
            comm::begin_compilation(what != nullptr ? what : "", is_own, limit_ms);
        static_cast<World*>(world)->compiles(what != nullptr ? &begun : nullptr);
      });
    },
    [](void* member) { return group_of(member).is_delayed(); },
};

}  // namespace
}  // namespace shardwise::gloo_engine

extern "C" __attribute__((visibility("default"))) const shardwise::GlooEngine* shardwise_gloo_v1() {
  return &shardwise::gloo_engine::kGlooEngine;
}
