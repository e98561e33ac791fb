// Threads, which the system may refuse: `ulimit -u` and pids.max of a container limit their number.
#pragma once
#include <exception>
#include <thread>
#include <utility>

namespace shardwise {

constexpr char kNoThread[] =
    "the system refuses another thread, because this process or this user has as many as its limit "
    "allows (pids.max of a container, ulimit -u). Raise the limit, or use fewer ranks, streams or "
    "threads (SHARDWISE_NUM_THREADS)";

// False if the system refuses it.
template <class Body>
bool start_thread(std::thread* thread, Body body) {
  try {
    *thread = std::thread(std::move(body));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// The same for a thread that nothing waits for.
template <class Body>
bool start_detached(Body body) {
  std::thread thread;
  if (!start_thread(&thread, std::move(body))) return false;
  thread.detach();
  return true;
}

}  // namespace shardwise
