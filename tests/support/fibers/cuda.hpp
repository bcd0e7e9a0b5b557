// This header gives kernels what they need of CUDA, with a fiber for each thread of a block. Blocks
// run one after the other. Kernels compute the same results as on a GPU, only slowly.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#undef __device__
#undef __global__
#undef __grid_constant__
#undef __host__
#undef __shared__
#define __device__
#define __global__
#define __grid_constant__
#define __host__
#define __shared__ static

namespace fibers {

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = 96 << 10;

struct Fiber {
  jmp_buf context;
  std::vector<char> stack;
  bool has_ended;
  unsigned meetings;  // meetings that it has come to
  unsigned long long told;
};

inline std::vector<Fiber> all;
inline jmp_buf scheduler;
inline std::function<void()> body;
inline unsigned thread, threads, block, blocks;

// Switches by jumps, since swapcontext asks the kernel for the signal mask each time.
inline void yield() {
  if (_setjmp(all[thread].context) == 0) {
    _longjmp(scheduler, 1);
  }
}

inline void resume() {
  if (_setjmp(scheduler) == 0) {
    _longjmp(all[thread].context, 1);
  }
}

// Runs the body for one thread of each block, one block after the other.
inline void run() {
  for (;;) {
    yield();
    body();
    all[thread].has_ended = true;
  }
}

inline void make() {
  ucontext_t first;
  Fiber& made = all[thread];
  made.stack.resize(kStackBytes);
  getcontext(&first);
  first.uc_stack.ss_sp = made.stack.data();
  first.uc_stack.ss_size = made.stack.size();
  makecontext(&first, run, 0);
  if (_setjmp(scheduler) == 0) {
    setcontext(&first);
  }
}

// Waits until all `count` threads from `first` on have come to as many meetings. The threads of a
// warp come to the meetings of the block, and to those of their warp.
inline void meet(unsigned first, unsigned count) {
  const unsigned mine = ++all[thread].meetings;
  for (unsigned i = first; i < first + count; ++i) {
    while (all[i].meetings < mine) {
      if (all[i].has_ended) {
        std::fputs("a thread has left that others wait for\n", stderr);
        std::abort();
      }
      yield();
    }
  }
}

inline void meetWarp() {
  meet(thread / kWarp * kWarp, kWarp);
}

template <class T>
T exchange(T own, unsigned from) {
  static_assert(sizeof(T) <= sizeof(Fiber::told));
  std::memcpy(&all[thread].told, &own, sizeof own);
  meetWarp();
  std::memcpy(&own, &all[thread / kWarp * kWarp + from].told, sizeof own);
  meetWarp();
  return own;
}

inline void runBlock() {
  for (unsigned i = 0; i < threads; ++i) {
    all[i].has_ended = false;
    all[i].meetings = 0;
  }
  for (bool is_left = true; is_left;) {
    is_left = false;
    for (thread = 0; thread < threads; ++thread) {
      if (!all[thread].has_ended) {
        is_left = true;
        resume();
      }
    }
  }
}

inline void launch(unsigned of_blocks, unsigned of_threads, size_t, cudaStream_t,
                   std::function<void()> kernel) {
  body = std::move(kernel);
  blocks = of_blocks;
  threads = of_threads;
  for (thread = all.size(); thread < threads; ++thread) {
    all.emplace_back();
    make();
  }
  for (block = 0; block < blocks; ++block) {
    runBlock();
  }
}

struct Index {
  unsigned x;
};

template <class To, class From>
To bitsOf(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace fibers

#define blockDim (fibers::Index{fibers::threads})
#define blockIdx (fibers::Index{fibers::block})
#define gridDim (fibers::Index{fibers::blocks})
#define threadIdx (fibers::Index{fibers::thread})

using std::max;
using std::min;

inline void __syncthreads() {
  fibers::meet(0, fibers::threads);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned apart) {
  return fibers::exchange(value, fibers::thread % fibers::kWarp ^ apart);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned apart) {
  const unsigned lane = fibers::thread % fibers::kWarp;
  return fibers::exchange(value, lane >= apart ? lane - apart : lane);
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  return std::exchange(*to, *to + value);
}
inline unsigned __float_as_uint(float number) {
  return fibers::bitsOf<unsigned>(number);
}
inline float __uint_as_float(unsigned bits) {
  return fibers::bitsOf<float>(bits);
}
inline long long __double_as_longlong(double number) {
  return fibers::bitsOf<long long>(number);
}
#define cudaGetLastError() cudaSuccess
#define cudaMemcpyAsync(to, from, bytes, kind, stream) (std::memcpy(to, from, bytes), cudaSuccess)
#define cudaMemsetAsync(to, value, bytes, stream) (std::memset(to, value, bytes), cudaSuccess)
