/* A preloaded library: lets calls of the system fail below a folder. FAILING_CALLS names a file of
 * five numbers, which a program reads and writes while this runs: the call that fails, from 1, or
 * 0; its errno; whether all later calls fail too; how many calls there were; how many failed.
 * FAILING_CALLS_BELOW is the folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAILING_CALL, ERROR, LATER_TOO, CALLS, FAILED, NUMBERS };
enum { MOST_FILES = 1 << 16 };

static _Atomic int64_t* numbers;
static const char* folder;
static atomic_char is_below[MOST_FILES];

__attribute__((constructor)) static void prepare(void) {
  const char* path = getenv("FAILING_CALLS");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* memory =
      mmap(NULL, NUMBERS * sizeof *numbers, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return;
  folder = getenv("FAILING_CALLS_BELOW");
  numbers = memory;
}

static int fails(void) {
  const int64_t call = ++numbers[CALLS], failing = numbers[FAILING_CALL];
  if (failing == 0 || (numbers[LATER_TOO] ? call < failing : call != failing)) return 0;
  numbers[FAILED]++;
  errno = (int)numbers[ERROR];
  return 1;
}

static int path_fails(const char* path) {
  return numbers && strncmp(path, folder, strlen(folder)) == 0 && fails();
}

static int file_fails(int file) {
  return numbers && file >= 0 && file < MOST_FILES && is_below[file] && fails();
}

#define REAL(name)                           \
  static __typeof__(name)* real = NULL;      \
  if (!real) real = dlsym(RTLD_NEXT, #name)

#define OPENS(name)                                                                   \
  int name(const char* path, int flags, ...) {                                        \
    REAL(name);                                                                       \
    va_list args;                                                                     \
    va_start(args, flags);                                                            \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;     \
    va_end(args);                                                                     \
    if (path_fails(path)) return -1;                                                  \
    const int file = real(path, flags, mode);                                         \
    if (numbers && file >= 0 && file < MOST_FILES)                                    \
      is_below[file] = strncmp(path, folder, strlen(folder)) == 0;                    \
    return file;                                                                      \
  }

#define OF_PATH(name, parameters, ...)       \
  int name parameters {                      \
    REAL(name);                              \
    return path_fails(path) ? -1 : real(__VA_ARGS__); \
  }

#define OF_FILE(type, name, parameters, ...) \
  type name parameters {                     \
    REAL(name);                              \
    return file_fails(file) ? -1 : real(__VA_ARGS__); \
  }

OPENS(open)
OPENS(open64)
OF_PATH(mkdir, (const char* path, mode_t mode), path, mode)
OF_PATH(rename, (const char* path, const char* to), path, to)
OF_PATH(unlink, (const char* path), path)
OF_PATH(rmdir, (const char* path), path)
OF_FILE(ssize_t, write, (int file, const void* data, size_t size), file, data, size)
OF_FILE(ssize_t, writev, (int file, const struct iovec* data, int count), file, data, count)
OF_FILE(ssize_t, pwrite, (int file, const void* data, size_t size, off_t at), file, data, size, at)
OF_FILE(ssize_t, pwrite64, (int file, const void* data, size_t size, off64_t at), file, data, size,
        at)
OF_FILE(ssize_t, pwritev, (int file, const struct iovec* data, int count, off_t at), file, data,
        count, at)
OF_FILE(ssize_t, pwritev64, (int file, const struct iovec* data, int count, off64_t at), file, data,
        count, at)
OF_FILE(int, ftruncate, (int file, off_t size), file, size)
OF_FILE(int, ftruncate64, (int file, off64_t size), file, size)
OF_FILE(int, fsync, (int file), file)
OF_FILE(int, fdatasync, (int file), file)
