// Writes lines of JSON to an open file. Allocates nothing and takes no lock: signal handlers use it.
#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace shardwise {

class JsonLines {
 public:
  explicit JsonLines(int file) : file_(file) {}
  ~JsonLines() { flush(); }
  JsonLines(const JsonLines&) = delete;

  JsonLines& text(const char* key, const char* value) {
    begin(key);
    put('"');
    for (; *value; value++) escaped(static_cast<unsigned char>(*value));
    put('"');
    return *this;
  }
  JsonLines& number(const char* key, int64_t value) {
    begin(key);
    return add("%lld", static_cast<long long>(value));
  }
  JsonLines& list(const char* key, const int64_t* values, int32_t count) {
    begin(key);
    put('[');
    for (int32_t i = 0; i < count; i++)
      add(i == 0 ? "%lld" : ",%lld", static_cast<long long>(values[i]));
    put(']');
    return *this;
  }
  // `2026-05-01T10:00:00.000001Z`
  JsonLines& time(const char* key, int64_t ns) {
    using namespace std::chrono;  // the functions of the C library take locks
    const int64_t seconds = ns / 1'000'000'000, in_day = seconds % 86'400;
    const year_month_day date{sys_days{days{seconds / 86'400}}};
    begin(key);
    return add("\"%04d-%02u-%02uT%02lld:%02lld:%02lld.%06lldZ\"", static_cast<int>(date.year()),
               static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
               static_cast<long long>(in_day / 3600), static_cast<long long>(in_day / 60 % 60),
               static_cast<long long>(in_day % 60), static_cast<long long>(ns / 1000 % 1'000'000));
  }
  void end_line() {
    add("}\n");
    is_open_ = false;
  }

 private:
  void begin(const char* key) {
    add(is_open_ ? ",\"%s\":" : "{\"%s\":", key);
    is_open_ = true;
  }
  void escaped(unsigned char c) {
    if (c == '"' || c == '\\') put('\\');
    if (c < 0x20)
      add("\\u%04x", c);
    else
      put(static_cast<char>(c));
  }
  void put(char c) {
    if (used_ == sizeof buffer_) flush();
    buffer_[used_++] = c;
  }
  // For texts shorter than 100 bytes.
  __attribute__((format(printf, 2, 3))) JsonLines& add(const char* format, ...) {
    if (sizeof buffer_ - used_ < 100) flush();
    va_list args;
    va_start(args, format);
    used_ += static_cast<size_t>(vsnprintf(buffer_ + used_, sizeof buffer_ - used_, format, args));
    va_end(args);
    return *this;
  }
  void flush() {
    for (size_t done = 0; done < used_;) {
      const ssize_t written = ::write(file_, buffer_ + done, used_ - done);
      if (written <= 0) break;  // a full disk: the file ends here
      done += static_cast<size_t>(written);
    }
    used_ = 0;
  }

  int file_;
  char buffer_[1024];
  size_t used_ = 0;
  bool is_open_ = false;
};

}  // namespace shardwise
