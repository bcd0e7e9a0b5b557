// This file averages with neighbors the way a C program on MPI would. bluefog is compared with it.
// raw_mpi.py compiles and calls it.

#include <mpi.h>
#include <stddef.h>

enum { kMost = 16 };  // most sources, and most destinations, of one call

// A Turn says which ranks a call receives from, and which it sends to.
struct Turn {
  int sources_n;
  int destinations_n;
  int sources[kMost];
  int destinations[kMost];
};

static void average_of_2(float* restrict out, const float* restrict a, const float* restrict b,
                         size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = (a[i] + b[i]) * (1.0f / 2);
  }
}

static void average_of_3(float* restrict out, const float* restrict a, const float* restrict b,
                         const float* restrict c, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = (a[i] + b[i] + c[i]) * (1.0f / 3);
  }
}

// Averages any number of inputs. It goes block by block, so that the sums in between stay in the
// cache.
static void average_of_many(float* restrict out, const float* restrict own,
                            float* const* restrict others, int others_n, size_t count) {
  const float weight = 1.0f / (float)(others_n + 1);
  const size_t block = 4096;
  for (size_t at = 0; at < count; at += block) {
    const size_t n = count - at < block ? count - at : block;
    float* restrict sum = out + at;
    for (size_t i = 0; i < n; ++i) {
      sum[i] = own[at + i];
    }
    for (int k = 0; k < others_n; ++k) {
      const float* restrict other = others[k] + at;
      for (size_t i = 0; i < n; ++i) {
        sum[i] += other[i];
      }
    }
    for (size_t i = 0; i < n; ++i) {
      sum[i] *= weight;
    }
  }
}

static void average(float* out, const float* own, float* const* others, int others_n,
                    size_t count) {
  if (others_n == 1) {
    average_of_2(out, own, others[0], count);
  } else if (others_n == 2) {
    average_of_3(out, own, others[0], others[1], count);
  } else {
    average_of_many(out, own, others, others_n, count);
  }
}

static void exchange(const struct Turn* turn, const float* own, float* const* got, size_t count,
                     MPI_Comm comm) {
  MPI_Request requests[2 * kMost];
  int under_way = 0;
  for (int i = 0; i < turn->sources_n; ++i) {
    MPI_Irecv(got[i], (int)count, MPI_FLOAT, turn->sources[i], 0, comm, &requests[under_way++]);
  }
  for (int i = 0; i < turn->destinations_n; ++i) {
    MPI_Isend(own, (int)count, MPI_FLOAT, turn->destinations[i], 0, comm, &requests[under_way++]);
  }
  MPI_Waitall(under_way, requests, MPI_STATUSES_IGNORE);
}

// Makes the calls `first`, `first` + 1, ... of a sequence that goes through the turns again and
// again. The first call averages `own`, and each later one what the call before it has made. The
// results go to the two buffers of `out` by turns. Returns the seconds that one of the `reps` calls
// took.
double averages(const MPI_Comm* comm, const struct Turn* turns, size_t turns_n, size_t first,
                const float* own, float* const* got, float* const out[2], size_t count,
                size_t reps) {
  size_t at = first % turns_n;
  const double start = MPI_Wtime();
  for (size_t i = 0; i < reps; ++i) {
    const struct Turn* turn = &turns[at];
    exchange(turn, own, got, count, *comm);
    average(out[i % 2], own, got, turn->sources_n, count);
    own = out[i % 2];
    at = at + 1 < turns_n ? at + 1 : 0;
  }
  return (MPI_Wtime() - start) / (double)reps;
}
