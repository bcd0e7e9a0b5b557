// This file has the C functions that windows are compared with: MPI's put into another rank's
// memory, and operations on bare memory. raw_mpi.py compiles it, and window_calls.py calls the
// functions. Those with `reps` return the seconds that one of so many calls took.

#include <mpi.h>
#include <stddef.h>
#include <string.h>

static MPI_Win window;
static char* memory;

// Opens a window of `bytes` bytes on each rank, which stays open until the program ends. All ranks
// must call it.
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

// Copies to `places` places by turns, which lie one after the other.
double copy(char* to, const void* from, size_t bytes, size_t places, size_t reps) {
  const double start = MPI_Wtime();
  for (size_t i = 0; i < reps; ++i) {
    memcpy(to + i % places * bytes, from, bytes);
    __asm__ volatile("" ::: "memory");
  }
  return (MPI_Wtime() - start) / (double)reps;
}

// Computes out = out / 2 + others[0] / (2 n) + ..., for at most three others, and reads each once.
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
