#include "own_pair.h"

#include <gloo/transport/tcp/device.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <stdexcept>

namespace shardwise::gloo_engine {
namespace {

namespace tcp = ::gloo::transport::tcp;

// The device whose thread serves all connections of the process. It listens at an address that only
// this machine reaches, and no pair is ever expected there.
const std::shared_ptr<tcp::Device>& device() {
  // Never destroyed: the thread of a device may not be joined while the process ends.
  static auto* made = new std::shared_ptr<tcp::Device>(
      std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(tcp::attr("127.0.0.1"))));
  return *made;
}

// Runs work on the device's thread, where nothing else happens meanwhile. It may throw.
class Errand : public tcp::Handler {
 public:
  explicit Errand(std::function<void()> work)
      : work_(std::move(work)), wake_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.is_open()) throw std::runtime_error("no file descriptor is left");
  }
  void run() {
    std::future<void> done = done_->get_future();
    device()->registerDescriptor(wake_.fd(), EPOLLIN, this);
    done.get();
  }
  void handleEvents(int) override {
    const auto done = done_;  // `this` may be destroyed once it is set
    try {
      device()->unregisterDescriptor(wake_.fd(), this);
      work_();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  }

 private:
  const std::function<void()> work_;
  const Socket wake_;
  const std::shared_ptr<std::promise<void>> done_ = std::make_shared<std::promise<void>>();
};

}  // namespace

// Gloo of 2022 listens with each pair. This closes the socket before the device's thread handles
// its next event, so no connection gets in.
OwnPair::OwnPair(tcp::Context* context, tcp::Device* device, int32_t rank)
    : Pair(context, device, rank, std::chrono::hours(24)) {
  if (fd_ < 0) return;
  device_->unregisterDescriptor(fd_, this);
  ::close(fd_);
  fd_ = -1;
}

void OwnPair::adopt(Socket socket, const Endpoint& peer) {
  std::lock_guard<std::mutex> lock(m_);
  peer_ = tcp::Address(reinterpret_cast<const sockaddr*>(&peer.address), peer.length);
  device_->registerDescriptor(socket.fd(), EPOLLIN, this);
  fd_ = socket.release();
  changeState(CONNECTED);
}

bool OwnBuffer::is_sent() {
  std::lock_guard<std::mutex> lock(m_);
  return sendCompletions_ > 0;
}

std::unique_ptr<::gloo::transport::UnboundBuffer> OwnContext::createUnboundBuffer(void* data,
                                                                                  size_t bytes) {
  return std::make_unique<OwnBuffer>(shared_from_this(), data, bytes);
}

std::shared_ptr<OwnContext> OwnContext::make(int32_t rank, int32_t size) {
  auto context = std::make_shared<OwnContext>(device(), rank, size);
  Errand([&] {
    for (int32_t other = 0; other < size; other++)
      if (other != rank) context->createPair(other);
  }).run();
  return context;
}

std::unique_ptr<::gloo::transport::Pair>& OwnContext::createPair(int rank) {
  pairs_[static_cast<size_t>(rank)] = std::make_unique<OwnPair>(this, device_.get(), rank);
  return pairs_[static_cast<size_t>(rank)];
}

}  // namespace shardwise::gloo_engine
