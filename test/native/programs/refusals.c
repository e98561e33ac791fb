// Preloaded: the system refuses threads while the file exists that SHARDWISE_TEST_NO_THREADS names,
// and memory for scratch space while the one of SHARDWISE_TEST_NO_SCRATCH does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
typedef void* (*aligned)(size_t, size_t);

static int refuses(const char* variable) {
  const char* file = getenv(variable);
  return file != NULL && access(file, F_OK) == 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  if (refuses("SHARDWISE_TEST_NO_THREADS")) return EAGAIN;
  return ((create)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, body, argument);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  const size_t page = 4096;  // scratch space has whole pages; smaller are aligned objects
  if (bytes >= page && refuses("SHARDWISE_TEST_NO_SCRATCH")) return NULL;
  return ((aligned)dlsym(RTLD_NEXT, "aligned_alloc"))(alignment, bytes);
}
