// What windows are compared with, in C: MPI's put into another rank's memory, and the bare memory.
// Compiled and called by raw_mpi.py and window_calls.py. Each returns the seconds of one call.

#include <mpi.h>
#include <stddef.h>
#include <string.h>

static MPI_Win window;
static char* memory;

// Collective: a window of so many bytes on each rank, open for as long as the program lives.
void open_window(MPI_Comm* comm, size_t bytes) {
  MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, *comm, &memory, &window);
  memset(memory, 0, bytes);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
}

double put(const void* data, size_t bytes, int target, size_t reps) {
  const double start = MPI_Wtime();
  for (size_t i = 0; i < reps; ++i) {
    MPI_Put(data, (int)bytes, MPI_BYTE, target, 0, (int)bytes, MPI_BYTE, window);
    MPI_Win_flush(target, window);
  }
  return (MPI_Wtime() - start) / (double)reps;
}

// To so many places in turn.
double copy(char* to, const void* from, size_t bytes, size_t places, size_t reps) {
  const double start = MPI_Wtime();
  for (size_t i = 0; i < reps; ++i) {
    memcpy(to + i % places * bytes, from, bytes);
    __asm__ volatile("" ::: "memory");
  }
  return (MPI_Wtime() - start) / (double)reps;
}

// out = out / 2 + others[0] / (2 n) + ..., reading each once.
double average(float* restrict out, float* const* others, size_t n, size_t count, size_t reps) {
  const float weight = 0.5f / (float)n;
  const double start = MPI_Wtime();
  for (size_t rep = 0; rep < reps; ++rep) {
    const float* restrict a = others[0];
    const float* restrict b = others[n > 1 ? 1 : 0];
    const float* restrict c = others[n > 2 ? 2 : 0];
    if (n == 1) {
      for (size_t i = 0; i < count; ++i) {
        out[i] = 0.5f * out[i] + weight * a[i];
      }
    } else if (n == 2) {
      for (size_t i = 0; i < count; ++i) {
        out[i] = 0.5f * out[i] + weight * a[i] + weight * b[i];
      }
    } else {
      for (size_t i = 0; i < count; ++i) {
        out[i] = 0.5f * out[i] + weight * a[i] + weight * b[i] + weight * c[i];
      }
    }
    __asm__ volatile("" ::: "memory");
  }
  return (MPI_Wtime() - start) / (double)reps;
}
