// Plain TCP sockets that this library opens and closes itself. None of them blocks.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

namespace shardwise::gloo_engine {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct Endpoint {
  uint32_t length = 0;
  sockaddr_storage address = {};
};

// Listens at any port of an address of this machine. Throws.
Socket listen_at(const char* host, Endpoint* where);
// Accepts a connection; empty if no one connects.
Socket accept_one(const Socket& listener);
// Starts to connect. The socket becomes writable when it is connected or has failed. Empty: `why`
// has the error.
Socket begin_connecting(const Endpoint& peer, std::string* why);
// For a socket that has become writable: the error, or "" if it is connected.
std::string connecting_error(const Socket& socket);

// True if the system took all bytes, which it does for a few bytes on a new connection.
bool send_at_once(const Socket& socket, const void* data, size_t bytes);

// A message of fixed size that arrives in parts.
template <class Message>
struct Inbox {
  Message message = {};
  size_t got = 0;

  bool is_whole() const { return got == sizeof(Message); }
};

// Reads what has arrived, but no byte beyond the message. False: the connection is closed.
bool read_some(const Socket& socket, void* data, size_t bytes, size_t* got, std::string* why);
template <class Message>
bool read_some(const Socket& socket, Inbox<Message>& inbox, std::string* why) {
  return read_some(socket, &inbox.message, sizeof(Message), &inbox.got, why);
}

}  // namespace shardwise::gloo_engine
