// Plain TCP sockets that this library opens and closes itself. None of them blocks.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

namespace shardwise::across {

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

// At any port of an address of this machine. Throws.
Socket listen_at(const char* host, Endpoint* where);
// Empty: nobody waits.
Socket accept_one(const Socket& listener);
// Writable once connected, or once it is known why not. Empty: `why` says so.
Socket begin_connecting(const Endpoint& peer, std::string* why);
// Of a connection that has become writable: why there is none, or "".
std::string connecting_error(const Socket& socket);

// Whether all of it is with the system: few bytes of a new connection are.
bool send_at_once(const Socket& socket, const void* data, size_t bytes);

// A message of fixed size, as far as it has come.
template <class Message>
struct Inbox {
  Message message = {};
  size_t got = 0;

  bool is_whole() const { return got == sizeof(Message); }
};

// Reads what is there, and no byte more than asked for. False: the connection is lost.
bool read_some(const Socket& socket, void* data, size_t bytes, size_t* got, std::string* why);
template <class Message>
bool read_some(const Socket& socket, Inbox<Message>& inbox, std::string* why) {
  return read_some(socket, &inbox.message, sizeof(Message), &inbox.got, why);
}

}  // namespace shardwise::across
