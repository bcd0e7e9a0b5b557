// Compiled with --fmad=false: products are rounded before they are added, as on the CPU.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "transport/cuda/weighted_sum.cuh"

namespace {

// As many as leave room for the rest in the 4 KiB that every driver takes with a launch.
constexpr int kMostInputs = 240;
constexpr int kThreads = 256;
constexpr size_t kMostBlocks = 4096;  // more are loops of these
constexpr size_t kVectorBytes = 16;

template <class T>
struct Sum {
  using Type = float;
};
template <>
struct Sum<double> {
  using Type = double;
};

template <class Wide>
struct Terms {
  const void* inputs[kMostInputs];
  Wide weights[kMostInputs];
  int n;
  Wide divisor;
};

__device__ float widened(__half value) { return __half2float(value); }
__device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float widened(float value) { return value; }
__device__ double widened(double value) { return value; }

__device__ void narrow(float from, __half& to) { to = __float2half_rn(from); }
__device__ void narrow(float from, __nv_bfloat16& to) { to = __float2bfloat16_rn(from); }
__device__ void narrow(float from, float& to) { to = from; }
__device__ void narrow(double from, double& to) { to = from; }

template <class T, int n>
struct alignas(sizeof(T) * n) Vector {
  T values[n];
};

template <class T, int width, class Wide = typename Sum<T>::Type>
__global__ void addTerms(T* out, const __grid_constant__ Terms<Wide> terms, size_t vectors) {
  using Lane = Vector<T, width>;
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    Wide sum[width];
    for (int j = 0; j < terms.n; ++j) {
      const Lane lane = reinterpret_cast<const Lane*>(terms.inputs[j])[i];
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const Wide term = terms.weights[j] * widened(lane.values[k]);
        sum[k] = j == 0 ? term : sum[k] + term;
      }
    }
    Lane result;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      narrow(terms.divisor == 1 ? sum[k] : sum[k] / terms.divisor, result.values[k]);
    }
    reinterpret_cast<Lane*>(out)[i] = result;
  }
}

template <class T>
bool isAligned(const void* out, const Terms<T>& terms) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0; };
  return aligned(out) && std::all_of(terms.inputs, terms.inputs + terms.n, aligned);
}

unsigned blocksFor(size_t vectors) {
  return unsigned(std::min((vectors + kThreads - 1) / kThreads, kMostBlocks));
}

// As vectors where all begin on a vector's boundary; what is left over one by one.
template <class T, class Wide>
cudaError_t launch(T* out, Terms<Wide> terms, size_t numel, cudaStream_t stream) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const size_t vectors = isAligned(out, terms) ? numel / kWidth : 0;
  const size_t done = vectors * kWidth;
  if (vectors > 0) {
    addTerms<T, kWidth><<<blocksFor(vectors), kThreads, 0, stream>>>(out, terms, vectors);
  }
  if (done < numel) {
    for (int j = 0; j < terms.n; ++j) {
      terms.inputs[j] = static_cast<const T*>(terms.inputs[j]) + done;
    }
    addTerms<T, 1><<<blocksFor(numel - done), kThreads, 0, stream>>>(out + done, terms, numel - done);
  }
  return cudaPeekAtLastError();
}

// More inputs than a launch takes: the sum so far is the next launch's first term.
template <class T>
cudaError_t ofType(void* out, const void* const* inputs, const double* weights, int n,
                   double divisor, size_t numel, cudaStream_t stream) {
  using Wide = typename Sum<T>::Type;
  for (int done = 0; done < n;) {
    Terms<Wide> terms;
    terms.n = 0;
    const auto add = [&terms](const void* input, double weight) {
      terms.inputs[terms.n] = input;
      terms.weights[terms.n++] = static_cast<Wide>(weight);
    };
    if (done > 0) {
      add(out, 1);
    }
    for (; done < n && terms.n < kMostInputs; ++done) {
      add(inputs[done], weights[done]);
    }
    terms.divisor = static_cast<Wide>(done < n ? 1 : divisor);
    const cudaError_t error = launch(static_cast<T*>(out), terms, numel, stream);
    if (error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace

int weightedSum(void* out, const void* const* inputs, const double* weights, int n, double divisor,
                size_t numel, int type, bluefog_stream stream) {
  if (n < 1) {
    return cudaErrorInvalidValue;
  }
  if (numel == 0) {
    return cudaSuccess;
  }
  const auto in = static_cast<cudaStream_t>(stream);
  switch (type) {
    case BLUEFOG_F16:
      return ofType<__half>(out, inputs, weights, n, divisor, numel, in);
    case BLUEFOG_BF16:
      return ofType<__nv_bfloat16>(out, inputs, weights, n, divisor, numel, in);
    case BLUEFOG_F32:
      return ofType<float>(out, inputs, weights, n, divisor, numel, in);
    case BLUEFOG_F64:
      return ofType<double>(out, inputs, weights, n, divisor, numel, in);
    default:
      return cudaErrorInvalidValue;
  }
}
