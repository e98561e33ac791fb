#include "socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace shardwise::gloo_engine {
namespace {

constexpr int kKind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::runtime_error(what + ": " + strerror(errno));
}

Endpoint endpoint_of(const char* host) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = getaddrinfo(host, nullptr, &hints, &found);
  if (failed != 0)
    throw std::runtime_error(std::string("no address for ") + host + ": " + gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  Endpoint endpoint;
  endpoint.length = all->ai_addrlen;
  memcpy(&endpoint.address, all->ai_addr, all->ai_addrlen);
  return endpoint;
}

void set_no_delay(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_at(const char* host, Endpoint* where) {
  *where = endpoint_of(host);
  const std::string named = std::string("listen at ") + host;
  auto* address = reinterpret_cast<sockaddr*>(&where->address);
  Socket made(socket(address->sa_family, kKind, 0));
  if (!made.is_open() || bind(made.fd(), address, where->length) != 0 ||
      listen(made.fd(), SOMAXCONN) != 0)
    throw_errno(named);
  if (getsockname(made.fd(), address, &where->length) != 0) throw_errno(named);
  return made;
}

Socket accept_one(const Socket& listener) {
  Socket made(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (made.is_open()) set_no_delay(made);
  return made;
}

Socket begin_connecting(const Endpoint& peer, std::string* why) {
  const auto* address = reinterpret_cast<const sockaddr*>(&peer.address);
  Socket made(socket(address->sa_family, kKind, 0));
  if (made.is_open()) set_no_delay(made);
  if (made.is_open() && (connect(made.fd(), address, peer.length) == 0 || errno == EINPROGRESS))
    return made;
  *why = strerror(errno);
  return {};
}

std::string connecting_error(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? "" : strerror(error);
}

bool send_at_once(const Socket& socket, const void* data, size_t bytes) {
  return send(socket.fd(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

bool read_some(const Socket& socket, void* data, size_t bytes, size_t* got, std::string* why) {
  while (*got < bytes) {
    const ssize_t read =
        recv(socket.fd(), static_cast<char*>(data) + *got, bytes - *got, MSG_DONTWAIT);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (read <= 0) {
      *why = read == 0 ? "connection closed" : strerror(errno);
      return false;
    }
    *got += static_cast<size_t>(read);
  }
  return true;
}

}  // namespace shardwise::gloo_engine
