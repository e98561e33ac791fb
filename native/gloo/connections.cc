#include "connections.h"

#include <gloo/transport/address.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace shardwise::across {

static_assert(::gloo::transport::Address::kMaxByteSize + sizeof(uint32_t) <= kGlooAddressBytes);
// Gloo waits five times as long for a connection as it is told.
constexpr int64_t kPatience = 5;

Device device_of(const char* host) {
  // Never let go of: the thread of a device may not be joined while the process ends.
  static auto* mutex = new std::mutex;
  static auto* devices = new std::map<std::string, Device>;
  std::lock_guard<std::mutex> lock(*mutex);
  Device& device = (*devices)[host];
  if (!device) {
    device = ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr(host));
  }
  return device;
}

Connections::Connections(const Device& device, int32_t rank, int32_t size, int64_t timeout_ms) : context_(device->createContext(rank, size)) {
  context_->setTimeout(std::chrono::milliseconds(std::max<int64_t>(1, timeout_ms / kPatience)));
  for (int32_t other = 0; other < size; other++) {
    if (other != rank) context_->createPair(other);
  }
}

void Connections::addresses(char* out) const {
  memset(out, 0, static_cast<size_t>(size()) * kGlooAddressBytes);
  for (int32_t other = 0; other < size(); other++, out += kGlooAddressBytes) {
    if (other == rank()) continue;
    const std::vector<char> bytes = context_->getPair(other)->address().bytes();
    const auto length = static_cast<uint32_t>(bytes.size());
    memcpy(out, &length, sizeof length);
    memcpy(out + sizeof length, bytes.data(), bytes.size());
  }
}

void Connections::connect(int32_t rank, const char* address) {
  uint32_t length;
  memcpy(&length, address, sizeof length);
  if (length == 0 || length > kGlooAddressBytes - sizeof length) throw std::runtime_error("it has sent no address");
  const char* bytes = address + sizeof length;
  context_->getPair(rank)->connect(std::vector<char>(bytes, bytes + length));
}

}  // namespace shardwise::across
