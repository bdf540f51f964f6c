/*
 * The C interface between generated CPU kernels and the runtime. Generated code includes a copy of this text.
 * Bump TW_ABI when the layout or the meaning of anything here changes: an addon built for another version is refused,
 * and tuning results of another version are not used.
 */
#ifndef TILEWRIGHT_ABI_H
#define TILEWRIGHT_ABI_H
#include <stdint.h>

#define TW_ABI 4

/* Extents that one function may have. */
#define TW_MAX_EXTENTS 12
/* Work counters of a launch. */
#define TW_COUNTERS 16

typedef struct tw_launch {
  void *const *buffers;            /* base addresses, in the order the kernel's parameter list names them */
  int64_t extents[TW_MAX_EXTENTS]; /* sizes that this call brings, in the order its function declares them */
  char *scratch;                   /* 64-byte aligned; worker w owns [w * scratch_bytes, (w + 1) * scratch_bytes) */
  int64_t scratch_bytes;
  int64_t *next;                   /* shared work counters, 0 at the start of every launch; fetch-add to take work */
} tw_launch;

/* Every worker calls the kernel; work is split inside. The runtime puts a barrier between launches. */
typedef void (*tw_kernel)(const tw_launch *launch, int32_t worker, int32_t workers);

#endif
