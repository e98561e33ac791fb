#include "fake_device.h"

#include <sys/mman.h>

#include <cstdio>

namespace shardwise::comm::selftest {
namespace {

FakeDevice& fake(void* member) { return *static_cast<FakeDevice*>(member); }

Status fake_run(void* member, const CollectiveCall& call) {
  FakeDevice& device = fake(member);
  std::unique_lock<std::mutex> lock(device.mutex);
  if (device.aborted) return fail(call.error, Code::Closed, "the fake device was aborted");
  if (call.dtype == DType::Int16) return fail(call.error, Code::Unsupported, "no int16");
  if (device.devices->closed.load())
    return fail(call.error, Code::Device, "the fake connection was closed");
  if (call.dtype == DType::Bool) return fail(call.error, Code::Device, "the fake device is broken");
  CommRecord record = {};
  record.sequence = device.records.size() + 1;
  record.kind = call.kind;
  record.dtype = call.dtype;
  record.root = -1;
  record.state = CommState::Launched;
  snprintf(record.name, sizeof record.name, "%s", call.name);
  snprintf(record.where, sizeof record.where, "%s", call.where);
  device.records.push_back(record);
  device.begun.push_back(now_ns());
  device.devices->launched[device.rank].store(device.records.size());
  const auto all_came = [&device] {
    for (int32_t r = 0; r < device.size; r++)
      if (device.devices->launched[r].load() == 0) return false;
    return true;
  };
  while (device.devices->connects.load() && !all_came()) {
    if (device.aborted) return fail(call.error, Code::Closed, "the fake device was aborted");
    lock.unlock();
    usleep(1000);
    lock.lock();
  }
  return kOk;
}

void fake_abort(void* member, const ErrorText& reason) {
  std::lock_guard<std::mutex> lock(fake(member).mutex);
  fake(member).aborted = true;
  fake(member).devices->given_up.store(true);
  fake(member).reason = reason.text;
}

Status fake_failure(void* member, ErrorText* error) {
  FakeDevice& device = fake(member);
  std::lock_guard<std::mutex> lock(device.mutex);
  if (device.aborted) return fail(error, Code::Closed, "aborted: %s", device.reason.c_str());
  for (size_t i = 0; i < device.records.size(); i++) {
    if (!device.is_done(i + 1) && device.devices->closed.load())
      return fail(error, Code::Device, "the fake connection was closed");
    if (device.is_done(i + 1) || now_ns() - device.begun[i] < device.timeout_ns) continue;
    return fail(error, Code::Peer, "the fake device has waited too long");
  }
  return kOk;
}

int32_t fake_recent(void* member, CommRecord* out, int32_t most) {
  FakeDevice& device = fake(member);
  std::lock_guard<std::mutex> lock(device.mutex);
  const size_t count = std::min(device.records.size(), static_cast<size_t>(most)),
               first = device.records.size() - count;
  for (size_t i = 0; i < count; i++) {
    out[i] = device.records[first + i];
    if (device.is_done(first + i + 1)) out[i].state = CommState::Complete;
  }
  return static_cast<int32_t>(count);
}

void fake_destroy(void* member) {
  Devices& devices = *fake(member).devices;
  if (devices.closing_ms.load() == 0) return;
  devices.closed.store(true);
  usleep(static_cast<useconds_t>(devices.closing_ms.load() * 1000));
}

}  // namespace

const CommEngine kFakeEngine = {
    "fake",
    fake_run,
    fake_abort,
    fake_failure,
    [](void* member, int64_t ms) { fake(member).timeout_ns = ms * 1'000'000; },
    fake_destroy,
    fake_recent};

Devices* new_devices() {
  void* memory =
      mmap(nullptr, sizeof(Devices), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Devices{};
}

}  // namespace shardwise::comm::selftest
