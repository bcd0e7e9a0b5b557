// These are what glibc 2.28 and GCC 8's libstdc++ lack, and newer headers or libstdc++.a call.
// manylinux.py links them into each module and program, hidden, so that they serve nobody else.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// libstdc++ counts references without atomic instructions where this is not 0.
char __libc_single_threaded = 0;

pid_t gettid(void) {
  return (pid_t)syscall(SYS_gettid);
}

int tgkill(pid_t process, pid_t thread, int signal) {
  return (int)syscall(SYS_tgkill, process, thread, signal);
}

// Up to glibc 2.32 these four were inline functions around functions that take a version.
int __fxstat(int version, int file, struct stat* out);
int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstatat(int version, int folder, const char* path, struct stat* out, int flags);
enum { kStatVersion = 1 };

int fstat(int file, struct stat* out) {
  return __fxstat(kStatVersion, file, out);
}
int stat(const char* path, struct stat* out) {
  return __xstat(kStatVersion, path, out);
}
int lstat(const char* path, struct stat* out) {
  return __lxstat(kStatVersion, path, out);
}
int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return __fxstatat(kStatVersion, folder, path, out, flags);
}

// Waits by the monotonic clock came with glibc 2.30. Without them libstdc++ waits by the wall clock
// and looks at the time again, as here; its callers bear an early end.
static struct timespec onWallClock(clockid_t clock, const struct timespec* deadline) {
  struct timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += deadline->tv_sec - now.tv_sec;
  wall.tv_nsec += deadline->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec >= 1000000000) {
    wall.tv_nsec -= 1000000000;
    ++wall.tv_sec;
  } else if (wall.tv_nsec < 0) {
    wall.tv_nsec += 1000000000;
    --wall.tv_sec;
  }
  return wall;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  typedef int (*Function)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  Function newer = (Function)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  if (newer != 0) {
    return newer(condition, mutex, clock, deadline);
  }
  struct timespec wall = onWallClock(clock, deadline);
  return pthread_cond_timedwait(condition, mutex, &wall);
}

#define LOCK_BY_CLOCK(name, Lock, older)                                   \
  int name(Lock* lock, clockid_t clock, const struct timespec* deadline) { \
    typedef int (*Function)(Lock*, clockid_t, const struct timespec*);     \
    Function newer = (Function)dlsym(RTLD_DEFAULT, #name);                 \
    if (newer != 0) {                                                      \
      return newer(lock, clock, deadline);                                 \
    }                                                                      \
    struct timespec wall = onWallClock(clock, deadline);                   \
    return older(lock, &wall);                                             \
  }
LOCK_BY_CLOCK(pthread_mutex_clocklock, pthread_mutex_t, pthread_mutex_timedlock)
LOCK_BY_CLOCK(pthread_rwlock_clockrdlock, pthread_rwlock_t, pthread_rwlock_timedrdlock)
LOCK_BY_CLOCK(pthread_rwlock_clockwrlock, pthread_rwlock_t, pthread_rwlock_timedwrlock)
LOCK_BY_CLOCK(sem_clockwait, sem_t, sem_timedwait)

// GCC 12's header calls these two members of std::exception_ptr. libstdc++.a has them, too, but
// beside a second std::terminate. The older library has them inside of its copy constructor and
// destructor.
#define MEMBER(name) __asm__("_ZNSt15__exception_ptr13exception_ptr" name)
struct ExceptionPointer {
  void* exception;
};
void copyConstruct(struct ExceptionPointer* copy, const struct ExceptionPointer*)
    MEMBER("C1ERKS0_");
void destruct(struct ExceptionPointer*) MEMBER("D1Ev");
void addReference(struct ExceptionPointer* self) MEMBER("9_M_addrefEv");
void release(struct ExceptionPointer* self) MEMBER("10_M_releaseEv");

void addReference(struct ExceptionPointer* self) {
  struct ExceptionPointer copy;  // It keeps its reference, as it is never destructed.
  copyConstruct(&copy, self);
}
void release(struct ExceptionPointer* self) {
  destruct(self);
}
