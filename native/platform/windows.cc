#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
// after windows.h
#include <cpuid.h>
#include <fcntl.h>
#include <io.h>
#include <psapi.h>
#include <sys/stat.h>
#include <tlhelp32.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "platform.h"

namespace shardwise::platform {

namespace {

std::wstring wide(const char* text) {
  const int length = MultiByteToWideChar(CP_UTF8, 0, text, -1, nullptr, 0);
  std::wstring result(static_cast<size_t>(std::max(length, 1)), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text, -1, result.data(), length);
  result.pop_back();
  return result;
}

std::string utf8(const wchar_t* text) {
  const int length = WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
  std::string result(static_cast<size_t>(std::max(length, 1)), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text, -1, result.data(), length, nullptr, nullptr);
  result.pop_back();
  return result;
}

// The error number of the C library for the last failed call.
int error_number() {
  switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
      return ENOENT;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      return EEXIST;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
      return EACCES;
    case ERROR_DISK_FULL:
      return ENOSPC;
    case ERROR_LOCK_VIOLATION:
    case ERROR_IO_PENDING:
      return EWOULDBLOCK;
    default:
      return EIO;
  }
}

}  // namespace

// ---- memory ----

void* map_memory(int64_t bytes) {
  return VirtualAlloc(nullptr, static_cast<size_t>(bytes), MEM_RESERVE | MEM_COMMIT,
                      PAGE_READWRITE);
}
void* map_sparse_memory(int64_t bytes) { return map_memory(bytes); }
void unmap_memory(void* memory, int64_t) { VirtualFree(memory, 0, MEM_RELEASE); }
void use_large_pages(void*, int64_t) {}  // they need a right that users do not have
void trim_heap() { HeapCompact(GetProcessHeap(), 0); }

MemorySize physical_memory() {
  MEMORYSTATUSEX found = {};
  found.dwLength = sizeof found;
  if (!GlobalMemoryStatusEx(&found)) return {};
  return {static_cast<int64_t>(found.ullTotalPhys), static_cast<int64_t>(found.ullAvailPhys)};
}

int64_t resident_bytes() {
  PROCESS_MEMORY_COUNTERS found = {};
  return K32GetProcessMemoryInfo(GetCurrentProcess(), &found, sizeof found)
             ? static_cast<int64_t>(found.WorkingSetSize)
             : 0;
}

// ---- processors and threads ----

int allowed_processors() {
  DWORD_PTR own = 0, all = 0;
  // Zero for a process in several groups of 64 processors.
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all) && own != 0)
    return __builtin_popcountll(own);
  return static_cast<int>(std::thread::hardware_concurrency());
}

void processor_name(char* name, size_t bytes) {
  uint32_t words[13] = {};
  for (uint32_t i = 0; i < 3; i++)
    if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                     &words[4 * i + 3]))
      return;
  snprintf(name, bytes, "%s", reinterpret_cast<const char*>(words));
}

void enlarge_stacks() {}  // a thread gets as much as the program asks for: 1 MiB or more

void yield_to_javascript() { SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL); }

namespace {

DWORD rounded_up(int64_t nanoseconds) {
  return static_cast<DWORD>(std::clamp<int64_t>((nanoseconds + 999'999) / 1'000'000, 1, 1 << 30));
}

}  // namespace

// Windows wakes only threads of the same process: those that wait for others look again.
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds, bool shared) {
  if (shared)
    Sleep(1);
  else
    WaitOnAddress(&word, &seen, sizeof seen, rounded_up(nanoseconds));
}

void wake_sleepers(std::atomic<uint32_t>& word, bool shared) {
  if (!shared) WakeByAddressAll(&word);
}

bool prepare_fence_of_threads() { return true; }
void fence_all_threads() { FlushProcessWriteBuffers(); }

// ---- processes ----

namespace {

// Closes a handle of the system.
class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  ~Handle() {
    if (ok()) CloseHandle(handle_);
  }
  Handle(const Handle&) = delete;
  bool ok() const { return handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE; }
  operator HANDLE() const { return handle_; }

 private:
  HANDLE handle_;
};

// In units of 100 ns; 0 if it is unknown.
uint64_t start_of(HANDLE process) {
  FILETIME start, ignored[3];
  if (!GetProcessTimes(process, &start, &ignored[0], &ignored[1], &ignored[2])) return 0;
  return static_cast<uint64_t>(start.dwHighDateTime) << 32 | start.dwLowDateTime;
}

}  // namespace

// 0 without success.
int32_t parent_process() {
  const Handle processes(CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0));
  PROCESSENTRY32W entry = {};
  entry.dwSize = sizeof entry;
  if (!processes.ok()) return 0;
  for (bool found = Process32FirstW(processes, &entry); found;
       found = Process32NextW(processes, &entry))
    if (entry.th32ProcessID == GetCurrentProcessId())
      return static_cast<int32_t>(entry.th32ParentProcessID);
  return 0;
}

ProcessId this_process() {
  return {static_cast<int32_t>(GetCurrentProcessId()), 0, start_of(GetCurrentProcess()), 0};
}

bool is_alive(const ProcessId& process) {
  const Handle found(OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, false,
                                 static_cast<DWORD>(process.pid)));
  if (!found.ok()) return GetLastError() != ERROR_INVALID_PARAMETER;
  if (WaitForSingleObject(found, 0) == WAIT_OBJECT_0) return false;
  return process.start == 0 || start_of(found) == process.start;
}

void wait_for_end_of(int32_t parent) {
  const Handle found(OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, false,
                                 static_cast<DWORD>(parent)));
  // A later process may have got the number of one that has ended.
  if (found.ok() && start_of(found) <= start_of(GetCurrentProcess()))
    WaitForSingleObject(found, INFINITE);
}

void end_this_process() { TerminateProcess(GetCurrentProcess(), 1); }

namespace {

void (*record_exception)(int);
LPTOP_LEVEL_EXCEPTION_FILTER filter_before;

}  // namespace

void at_fatal_signal(void (*record)(int signal)) {
  record_exception = record;
  filter_before = SetUnhandledExceptionFilter([](EXCEPTION_POINTERS* exception) -> LONG {
    record_exception(static_cast<int>(exception->ExceptionRecord->ExceptionCode));
    return filter_before ? filter_before(exception) : EXCEPTION_CONTINUE_SEARCH;
  });
}

// ---- libraries ----

void* open_library(const char* path, const char** reason) {
  const HMODULE library = LoadLibraryW(wide(path).c_str());
  if (library) return reinterpret_cast<void*>(library);
  static thread_local char text[80];
  snprintf(text, sizeof text, "Windows cannot load it: error %lu", GetLastError());
  *reason = text;
  return nullptr;
}

void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

const char* path_of_library(void* library, const char* name) {
  static thread_local std::string path;
  wchar_t found[1024];
  const DWORD length = GetModuleFileNameW(static_cast<HMODULE>(library), found, 1024);
  path = length > 0 && length < 1024 ? utf8(found) : name;
  return path.c_str();
}

// ---- files ----

namespace {

// Locks a byte that no file has: others can still read and write.
bool lock(HANDLE file) {
  OVERLAPPED place = {};
  place.OffsetHigh = 0x40000000;
  return LockFileEx(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &place);
}

void unlock(HANDLE file) {
  OVERLAPPED place = {};
  place.OffsetHigh = 0x40000000;
  UnlockFileEx(file, 0, 1, 0, &place);
}

}  // namespace

// The number is one of Node's C library, which is not that of the addon.
int lock_file(int fd) {
  using HandleOf = HANDLE (*)(int);
  static const auto handle_of = reinterpret_cast<HandleOf>(
      reinterpret_cast<void*>(GetProcAddress(GetModuleHandleW(nullptr), "uv_get_osfhandle")));
  if (!handle_of) return ENOSYS;
  return lock(handle_of(fd)) ? 0 : error_number();
}

void make_folder(const char* path) { CreateDirectoryW(wide(path).c_str(), nullptr); }

// The folder for temporary files is the user's own.
int create_private_file(const char* folder, const char* name) {
  make_folder(folder);
  const std::wstring path = wide(folder) + L'\\' + wide(name);
  constexpr int kNew = _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT;
  return _wopen(path.c_str(), kNew, _S_IREAD | _S_IWRITE);
}

// ---- memory with a name ----

namespace {

HANDLE handle_of(SharedFile file) { return reinterpret_cast<HANDLE>(file.handle); }

std::wstring path_of(const char* name) { return wide(shared_folder()) + wide(name); }

}  // namespace

const char* shared_folder() {
  static const std::string folder = [] {
    wchar_t found[MAX_PATH + 1];
    const DWORD length = GetTempPathW(MAX_PATH + 1, found);  // ends with a backslash
    return length > 1 && length <= MAX_PATH ? utf8(found).substr(0, utf8(found).size() - 1) : ".";
  }();
  return folder.c_str();
}

const char* const kMoreSharedMemory = "Remove files there";

SharedFile open_shared(const char* name, Open how) {
  const HANDLE file =
      CreateFileW(path_of(name).c_str(), GENERIC_READ | GENERIC_WRITE,
                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                  how == Open::New ? CREATE_NEW : OPEN_EXISTING, FILE_ATTRIBUTE_TEMPORARY, nullptr);
  if (file == INVALID_HANDLE_VALUE) errno = error_number();
  return {reinterpret_cast<intptr_t>(file)};  // INVALID_HANDLE_VALUE is -1
}

void close_shared(SharedFile file) { CloseHandle(handle_of(file)); }

bool is_same_shared(SharedFile a, SharedFile b) {
  BY_HANDLE_FILE_INFORMATION first, second;
  return GetFileInformationByHandle(handle_of(a), &first) &&
         GetFileInformationByHandle(handle_of(b), &second) &&
         first.dwVolumeSerialNumber == second.dwVolumeSerialNumber &&
         first.nFileIndexHigh == second.nFileIndexHigh &&
         first.nFileIndexLow == second.nFileIndexLow;
}

int64_t shared_bytes(SharedFile file) {
  LARGE_INTEGER size;
  return GetFileSizeEx(handle_of(file), &size) ? size.QuadPart : -1;
}

int reserve_shared(SharedFile file, int64_t bytes) {
  LARGE_INTEGER end;
  end.QuadPart = bytes;
  const bool done =
      SetFilePointerEx(handle_of(file), end, nullptr, FILE_BEGIN) && SetEndOfFile(handle_of(file));
  return done ? 0 : error_number();
}

void* map_shared(SharedFile file, int64_t bytes) {
  const Handle mapping(CreateFileMappingW(handle_of(file), nullptr, PAGE_READWRITE, 0, 0, nullptr));
  return mapping.ok()
             ? MapViewOfFile(mapping, FILE_MAP_ALL_ACCESS, 0, 0, static_cast<size_t>(bytes))
             : nullptr;
}
void unmap_shared(void* memory, int64_t) { UnmapViewOfFile(memory); }

bool lock_shared(SharedFile file) { return lock(handle_of(file)); }
void unlock_shared(SharedFile file) { unlock(handle_of(file)); }

void remove_shared(const char* name) { DeleteFileW(path_of(name).c_str()); }

MemorySize shared_room() {
  ULARGE_INTEGER free, total;
  if (!GetDiskFreeSpaceExW(wide(shared_folder()).c_str(), &free, &total, nullptr)) return {};
  return {static_cast<int64_t>(total.QuadPart), static_cast<int64_t>(free.QuadPart)};
}

}  // namespace shardwise::platform
