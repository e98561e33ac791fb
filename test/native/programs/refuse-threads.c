// Preloaded: no thread can be made while the file exists that SHARDWISE_TEST_NO_THREADS names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  const char* file = getenv("SHARDWISE_TEST_NO_THREADS");
  if (file != NULL && access(file, F_OK) == 0) return EAGAIN;
  return ((create)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, body, argument);
}
