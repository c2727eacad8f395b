// Preloaded (LD_PRELOAD) into the program, it lets calls on chosen files fail as a full or broken disk does.
// DAT_FAULTS=PART:CALL:ERRNO:FROM:COUNT[,...] - calls of the kind CALL (access, open, write, truncate, flock, fsync or
// rename) on files whose path has PART in it are counted from 1; COUNT of them, the FROM-th first, fail with ERRNO;
// ERRNO 0: the program is killed there; -1: it is stopped there (SIGSTOP), and the call is made when it goes on. At
// most 4 faults.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { kMost = 4 };

static struct Fault {
  char part[256], call[16];
  int error, from, count;
  atomic_int calls;
} faults[kMost];

__attribute__((constructor)) static void read_faults(void) {
  const char* text = getenv("DAT_FAULTS");
  if (text == NULL) return;
  for (struct Fault* one = faults; *text != '\0'; ++one) {
    int length = 0;
    if (one == faults + kMost || sscanf(text, "%255[^:]:%15[^:]:%d:%d:%d%n", one->part, one->call, &one->error,
                                        &one->from, &one->count, &length) != 5) {
      fprintf(stderr, "DAT_FAULTS: expected at most 4 times PART:CALL:ERRNO:FROM:COUNT, not %s\n", text);
      _exit(99);
    }
    text += length + (text[length] == ',');
  }
}

static int strike(struct Fault* one, const char* kind, const char* path) {
  if (one->part[0] == '\0' || strcmp(kind, one->call) != 0 || strstr(path, one->part) == NULL) return 0;
  const int number = ++one->calls;
  if (number < one->from || number - one->from >= one->count) return 0;
  if (one->error == 0) kill(getpid(), SIGKILL);
  if (one->error < 0) {
    kill(getpid(), SIGSTOP);
    return 0;
  }
  errno = one->error;
  return 1;
}

static int strikes(const char* kind, const char* path) {
  for (struct Fault* one = faults; one != faults + kMost; ++one)
    if (strike(one, kind, path)) return 1;
  return 0;
}

static int strikes_at(const char* kind, int file) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(name, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strikes(kind, path);
}

static void* next(const char* name) {
  void* function = dlsym(RTLD_NEXT, name);
  if (function == NULL) abort();
  return function;
}

int access(const char* path, int mode) {
  if (strikes("access", path)) return -1;
  return ((int (*)(const char*, int))next("access"))(path, mode);
}

#define OPEN(NAME)                                                           \
  int NAME(const char* path, int flags, ...) {                               \
    va_list more;                                                            \
    va_start(more, flags);                                                   \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;   \
    va_end(more);                                                            \
    if (strikes("open", path)) return -1;                                    \
    return ((int (*)(const char*, int, ...))next(#NAME))(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

#define FOPEN(NAME)                                                          \
  FILE* NAME(const char* path, const char* mode) {                           \
    if (strikes("open", path)) return NULL;                                  \
    return ((FILE * (*)(const char*, const char*)) next(#NAME))(path, mode); \
  }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int file, const void* data, size_t bytes) {
  if (strikes_at("write", file)) return -1;
  return ((ssize_t(*)(int, const void*, size_t))next("write"))(file, data, bytes);
}

#define PWRITE(NAME, OFFSET)                                                                   \
  ssize_t NAME(int file, const void* data, size_t bytes, OFFSET at) {                          \
    if (strikes_at("write", file)) return -1;                                                  \
    return ((ssize_t(*)(int, const void*, size_t, OFFSET))next(#NAME))(file, data, bytes, at); \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(NAME, LENGTH)                                \
  int NAME(int file, LENGTH length) {                         \
    if (strikes_at("truncate", file)) return -1;              \
    return ((int (*)(int, LENGTH))next(#NAME))(file, length); \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int flock(int file, int operation) {
  if (strikes_at("flock", file)) return -1;
  return ((int (*)(int, int))next("flock"))(file, operation);
}

#define SYNC(NAME)                            \
  int NAME(int file) {                        \
    if (strikes_at("fsync", file)) return -1; \
    return ((int (*)(int))next(#NAME))(file); \
  }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char* before, const char* after) {
  if (strikes("rename", after)) return -1;
  return ((int (*)(const char*, const char*))next("rename"))(before, after);
}
