// A GPU runs what these files hold. So they count only if no other user could write them.
#include "code_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace shardwise::cuda::fused {
namespace {

// Before the code in a file.
struct Header {
  char magic[8];
  uint64_t bytes, hash;
};
constexpr char kMagic[8] = {'s', 'w', 'c', 'u', 'b', 'i', 'n', '1'};
constexpr uint64_t kSeed = 0x5357;

Header header_of(const std::string& code) {
  Header header;
  memcpy(header.magic, kMagic, sizeof kMagic);
  header.bytes = code.size();
  header.hash = hash_of(code.data(), code.size(), kSeed);
  return header;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// "" if there is none.
std::string folder() {
  const std::string named = environment("SHARDWISE_TUNE_CACHE");
  if (named == "off") return "";
  if (!named.empty()) return named + "/kernels";
  const std::string cache = environment("XDG_CACHE_HOME"), user = environment("HOME");
  if (cache[0] == '/') return cache + "/shardwise/kernels";
  return user[0] == '/' ? user + "/.cache/shardwise/kernels" : "";
}

void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), S_IRWXU);
  mkdir(path.c_str(), S_IRWXU);
}

// Of this user, or of root, who may have filled the folder for all, and written by nobody else.
bool is_trusted(int descriptor) {
  struct stat found;
  return fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) &&
         (found.st_uid == geteuid() || found.st_uid == 0) &&
         (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Null if there is none that can be trusted.
FILE* open_trusted(const std::string& path) {
  // a FIFO must not block before it is refused
  const int descriptor = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  FILE* file = is_trusted(descriptor) ? fdopen(descriptor, "rb") : nullptr;
  if (!file) close(descriptor);
  return file;
}

}  // namespace

uint64_t hash_of(const void* data, size_t bytes, uint64_t seed) {
  const auto* from = static_cast<const unsigned char*>(data);
  uint64_t hash = seed ^ 0x9e3779b97f4a7c15u;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0x632be59bd9b4e019u;
    hash ^= hash >> 29;
  };
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), from += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    mix(word);
  }
  uint64_t last = bytes;
  for (size_t i = 0; i < bytes; i++) last = last << 8 | from[i];
  mix(last);
  return hash;
}

std::string code_name(const std::string& source, int32_t architecture, int32_t version) {
  char name[80];
  snprintf(name, sizeof name, "%016llx%016llx-sm%d-%d.cubin",
           static_cast<unsigned long long>(hash_of(source.data(), source.size(), 1)),
           static_cast<unsigned long long>(hash_of(source.data(), source.size(), 2)), architecture,
           version);
  return name;
}

bool read_code(const std::string& name, std::string* code) {
  const std::string in = folder();
  if (in.empty()) return false;
  FILE* file = open_trusted(in + "/" + name);
  if (!file) return false;
  Header header = {};
  constexpr uint64_t kMostBytes = uint64_t(64) << 20;
  bool whole = fread(&header, sizeof header, 1, file) == 1 && header.bytes <= kMostBytes;
  if (whole) {
    code->resize(header.bytes);
    whole = fread(code->data(), 1, code->size(), file) == code->size();
  }
  fclose(file);
  const Header expected = header_of(*code);
  return whole && memcmp(&expected, &header, sizeof header) == 0;
}

// Other processes see the whole file or none.
void write_code(const std::string& name, const std::string& code) {
  const std::string in = folder();
  if (in.empty()) return;
  make_folders(in);
  std::string temporary = in + "/" + name + ".XXXXXX";
  const int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) return;
  const Header header = header_of(code);
  FILE* file = fdopen(descriptor, "wb");
  bool whole = file && fwrite(&header, sizeof header, 1, file) == 1 &&
               fwrite(code.data(), 1, code.size(), file) == code.size();
  if (file)
    whole = fclose(file) == 0 && whole;
  else
    close(descriptor);
  if (!whole || rename(temporary.c_str(), (in + "/" + name).c_str()) != 0)
    unlink(temporary.c_str());
}

}  // namespace shardwise::cuda::fused
