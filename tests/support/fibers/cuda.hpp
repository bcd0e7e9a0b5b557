// What kernels need of CUDA, with a fiber for each thread of a block and one block after the other:
// they compute what they would, and run no faster than that.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <math.h>
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
  ucontext_t context;
  std::vector<char> stack;
  bool has_ended;
  unsigned meetings;  // that it has come to
  unsigned long long told;
};

inline std::vector<Fiber> all;
inline ucontext_t scheduler;
inline std::function<void()> body;
inline unsigned thread, threads, block, blocks;

inline void yield() {
  swapcontext(&all[thread].context, &scheduler);
}

inline void run() {
  body();
  all[thread].has_ended = true;
  yield();
}

// Threads of a warp come to as many meetings as its block, and to those of their own.
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

inline void begin(Fiber& fiber) {
  fiber.stack.resize(kStackBytes);
  fiber.has_ended = false;
  fiber.meetings = 0;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.data();
  fiber.context.uc_stack.ss_size = fiber.stack.size();
  makecontext(&fiber.context, run, 0);
}

inline void runBlock() {
  std::for_each(all.begin(), all.begin() + threads, begin);
  for (bool is_left = true; is_left;) {
    is_left = false;
    for (thread = 0; thread < threads; ++thread) {
      if (!all[thread].has_ended) {
        is_left = true;
        swapcontext(&scheduler, &all[thread].context);
      }
    }
  }
}

inline void launch(unsigned of_blocks, unsigned of_threads, size_t, cudaStream_t,
                   std::function<void()> kernel) {
  body = std::move(kernel);
  blocks = of_blocks;
  threads = of_threads;
  all.resize(std::max<size_t>(all.size(), threads));
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
