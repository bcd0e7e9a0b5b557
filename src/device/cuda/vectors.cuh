#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

constexpr int kThreads = 256;
constexpr size_t kMostBlocks = 4096;  // each of them loops over larger inputs
constexpr size_t kVectorBytes = 16;

template <class T>
constexpr int kWidth = kVectorBytes / sizeof(T);

// A Vector is aligned for one load of at most kVectorBytes, also where it takes several loads.
template <class T, int n>
struct alignas(std::min(sizeof(T) * n, kVectorBytes)) Vector {
  T values[n];
};

template <class T, int n>
__device__ Vector<T, n>& vectorAt(T* memory, size_t vector) {
  return reinterpret_cast<Vector<T, n>*>(memory)[vector];
}
template <class T, int n>
__device__ const Vector<T, n>& vectorAt(const T* memory, size_t vector) {
  return reinterpret_cast<const Vector<T, n>*>(memory)[vector];
}

// Calls use(element, its index) for the elements of the vector that begins at `first`. The last
// vector may have fewer than n elements.
template <int n, class T, class Use>
__device__ void forEachOf(const T* in, size_t first, size_t numel, const Use& use) {
  if (first + n <= numel) {
    const Vector<T, n> vector = vectorAt<T, n>(in + first, 0);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      use(vector.values[k], first + k);
    }
  } else {
#pragma unroll
    for (int k = 0; k < n; ++k) {
      if (first + k < numel) {
        use(in[first + k], first + k);
      }
    }
  }
}

inline bool isAligned(const void* memory, size_t bytes = kVectorBytes) {
  return reinterpret_cast<uintptr_t>(memory) % bytes == 0;
}

inline unsigned blocksFor(size_t items, size_t in_each = kThreads) {
  return unsigned(std::min((items + in_each - 1) / in_each, kMostBlocks));
}
