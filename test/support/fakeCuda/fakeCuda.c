/*
 * A CUDA driver for tests without a GPU: the entry points that runtime/native uses, over host memory. Device addresses
 * are host addresses. What real streams do asynchronously is queued, stream by stream, and executed by the first call
 * that waits for it, and no sooner: pinned memory reused too early, arguments that do not outlive their launch, and
 * streams that ought to wait for each other show up as wrong results.
 * A kernel is known by its name (fakeKernels.h); its parameters are read from the PTX text that it comes with, or from
 * the C text in what test/support/fakeNvrtc makes of it.
 * Any call can be told to fail: fakeCudaFail(), or in the environment FAKE_CUDA, parts with commas between:
 *   fail:cuMemAlloc_v2:2:3    result 2 from the third call of a process on; :3:1, the third call alone; result -1 hangs
 *   once=/path                only in the process that is the first to fail, which leaves this file
 *   nan:k_name:2              each launch of a kernel leaves NaN in the first floats of what its third pointer points
 *   at,
 *                             until something is uploaded: the inputs of the next micro-batch
 *   host=/path                a library of kernels, see hostKernels.h
 *   ipc=/folder               processes that name the same folder can open each other's memory
 *   driverVersion=13000       devices=, totalBytes= likewise
 *   failDevice=1              calls fail only with this device's context current
 *   mapsMemory=0              no memory can be put behind reserved addresses
 *   peers=0                   no device reaches another's memory
 *   order=7                   streams run ahead of those who wait for them, in an order drawn from this number
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 4096
#define MOST_PARAMETERS 160

#include "fakeResults.h"

typedef struct {
  char name[128];
  int count;
  size_t sizes[MOST_PARAMETERS];
  int dynamicShared, takesLargeClusters, isUsed;
} Function;
typedef struct { char *text; Function functions[64]; } Module;
typedef struct Stream Stream;
/* Generations: how often it was recorded, and the last record that was reached. */
typedef struct { double at; long recorded, reached; Stream *stream; int device; } Event;
typedef struct {
  unsigned grid[3], block[3], sharedBytes;
  void *stream;
  void *attributes;
  unsigned attributeCount;
} Config;
typedef struct { int id; char pad[4]; union { char pad[64]; unsigned cluster[3]; int flag; } value; } Attribute;
typedef struct {
  enum { COPY, FILL, RECORD, LAUNCH, WAIT } kind;
  void *target; const void *source; size_t bytes; unsigned char byte; void *snapshot; int isUpload;
  int device;
  Event *event;
  long generation;
  Function *function;
  Config config;
  unsigned cluster;
  unsigned char *arguments;
  size_t offsets[MOST_PARAMETERS];
} Command;
enum { MOST_QUEUED = 1 << 16, MOST_STREAMS = 64, MOST_DEVICES = 8 };
struct Stream { Command *queue[MOST_QUEUED]; size_t head, tail; int isDraining, device; };
/* isRange: its bytes come and go (fakeVmm.h). */
typedef struct { uint64_t address; size_t bytes; int device, isRange; } Block;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Stream *streams[MOST_STREAMS];
static Stream legacy; /* the stream of no handle */
static Block blocks[MOST], pinned[MOST];
static int sticky[MOST_DEVICES], liveHandles; /* sticky: the error that killed a device's context */
static long isHeld; /* waiting calls do not return, as if the device were busy */
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static size_t usedBytes[MOST_DEVICES], logBytes;
static char logText[1 << 20];
static double now;
static long driverVersion = 12040, deviceCount = 1, totalBytes = 1 << 30, peers = 1, mapsMemory = 1;
static _Thread_local void *currentContext;
static char contexts[MOST_DEVICES];
static int reaches[MOST_DEVICES][MOST_DEVICES]; /* peers that were enabled */

static int deviceOf(const void *context) { return context ? (int)((const char *)context - contexts) : 0; }
static int deadOf(void) { return sticky[deviceOf(currentContext)]; }

static void note(const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int written = vsnprintf(logText + logBytes, sizeof logText - logBytes, format, list);
  va_end(list);
  if (written > 0 && logBytes + (size_t)written < sizeof logText) logBytes += (size_t)written;
}

static Block *blockOf(Block *table, uint64_t address, size_t bytes) {
  for (int i = 0; i < MOST; i++)
    if (table[i].bytes && address >= table[i].address && address + bytes <= table[i].address + table[i].bytes)
      return &table[i];
  return NULL;
}

static Block *freeBlock(Block *table) {
  for (int i = 0; i < MOST; i++) if (!table[i].bytes && !table[i].isRange) return &table[i];
  return NULL;
}

#include "fakeIpc.h"
#include "fakeFaults.h"
#include "fakeKernels.h"
#include "fakeStreams.h"
#include "fakeDoors.h"

/* Every entry point: one at a time, told failures first, then the error that killed the context. */
#define BEGIN(call, needsContext)                    \
  pthread_mutex_lock(&mutex);                        \
  Result result = enter(#call, needsContext);        \
  if (result == OK) {
#define END                      \
  }                              \
  pthread_mutex_unlock(&mutex);  \
  return result;

#include "fakeVmm.h"

EXPORT Result cuInit(unsigned flags) {
  BEGIN(cuInit, 0) result = flags ? INVALID_VALUE : deviceCount ? OK : NO_DEVICE;
  END
}
EXPORT Result cuDriverGetVersion(int *version) { *version = (int)driverVersion; return OK; }
EXPORT Result cuDeviceGetCount(int *count) { BEGIN(cuDeviceGetCount, 0) *count = (int)deviceCount; END }
EXPORT Result cuDeviceGet(int *device, int ordinal) { BEGIN(cuDeviceGet, 0) *device = ordinal; END }
EXPORT Result cuDeviceGetName(char *name, int bytes, int device) {
  BEGIN(cuDeviceGetName, 0) snprintf(name, (size_t)bytes, "Fake H%d", 100 + device);
  END
}
EXPORT Result cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  BEGIN(cuDeviceGetUuid_v2, 0) for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(16 * i + device);
  END
}
EXPORT Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  BEGIN(cuDeviceTotalMem_v2, 0) *bytes = (size_t)totalBytes;
  END
}
EXPORT Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  BEGIN(cuDeviceGetAttribute, 0)
  switch (attribute) {
    case 13: *value = 1980000; break;
    case 16: *value = 6; break;
    case 38: *value = 50 << 20; break;
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    case 81: *value = 233472; break;
    case 97: *value = 232448; break;
    case 102: *value = (int)mapsMemory; break;
    default: result = INVALID_VALUE;
  }
  END
}
EXPORT Result cuDevicePrimaryCtxRetain(void **out, int device) {
  BEGIN(cuDevicePrimaryCtxRetain, 0) *out = &contexts[device % MOST_DEVICES];
  liveHandles++;
  END
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  BEGIN(cuDevicePrimaryCtxRelease_v2, 0) liveHandles--;
  END
}
EXPORT Result cuCtxSetCurrent(void *which) { BEGIN(cuCtxSetCurrent, 0) currentContext = which; END }

EXPORT Result cuMemGetInfo_v2(size_t *free, size_t *total) {
  BEGIN(cuMemGetInfo_v2, 1) *total = (size_t)totalBytes;
  *free = (size_t)totalBytes - usedBytes[deviceOf(currentContext)];
  END
}
EXPORT Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  BEGIN(cuMemAlloc_v2, 1)
  Block *block = freeBlock(blocks);
  if (!block || !bytes || usedBytes[deviceOf(currentContext)] + bytes > (size_t)totalBytes) result = OUT_OF_MEMORY;
  else {
    void *memory = deviceAlloc(bytes);
    memset(memory, 0xCD, bytes);
    *block = (Block){(uint64_t)(uintptr_t)memory, bytes, deviceOf(currentContext), 0};
    *address = block->address;
    usedBytes[block->device] += bytes;
    liveHandles++;
    note("alloc %zu\n", bytes);
  }
  END
}
EXPORT Result cuMemFree_v2(uint64_t address) {
  pthread_mutex_lock(&mutex);
  drainAll();
  Block *block = blockOf(blocks, address, 0);
  Result result = currentContext && block ? deadOf() : INVALID_VALUE;
  if (block) {
    deviceFree((void *)(uintptr_t)block->address);
    usedBytes[block->device] -= block->bytes;
    block->bytes = 0;
    liveHandles--;
  }
  pthread_mutex_unlock(&mutex);
  return result;
}
EXPORT Result cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  (void)flags;
  BEGIN(cuMemHostAlloc, 1)
  Block *block = freeBlock(pinned);
  *out = malloc(bytes);
  memset(*out, 0xEF, bytes);
  *block = (Block){(uint64_t)(uintptr_t)*out, bytes, deviceOf(currentContext), 0};
  liveHandles++;
  note("pin %zu\n", bytes);
  END
}
EXPORT Result cuMemFreeHost(void *address) {
  pthread_mutex_lock(&mutex);
  drainAll();
  Block *block = blockOf(pinned, (uint64_t)(uintptr_t)address, 0);
  if (block) block->bytes = 0, free(address), liveHandles--;
  pthread_mutex_unlock(&mutex);
  return block ? deadOf() : INVALID_VALUE;
}

/* Whether a block is there, on the device of a stream. */
static int isOf(const Stream *stream, const Block *block) {
  return block && (!stream || stream->device == block->device);
}

static Result queueCopy(void *stream, void *target, const void *source, size_t bytes, int isPinned) {
  Command *command = push(stream, COPY);
  command->target = target;
  command->source = source;
  command->bytes = bytes;
  command->isUpload = blockOf(blocks, (uint64_t)(uintptr_t)target, 1) != NULL &&
                      blockOf(blocks, (uint64_t)(uintptr_t)source, 1) == NULL;
  if (!isPinned) memcpy(command->snapshot = malloc(bytes), source, bytes);
  return OK;
}
EXPORT Result cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes, void *stream) {
  BEGIN(cuMemcpyHtoDAsync_v2, 1)
  note("upload %zu\n", bytes);
  if (!isOf(stream, blockOf(blocks, target, bytes))) result = INVALID_VALUE;
  else
    result = queueCopy(stream, (void *)(uintptr_t)target, source, bytes,
                       blockOf(pinned, (uint64_t)(uintptr_t)source, bytes) != NULL);
  END
}
EXPORT Result cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes, void *stream) {
  BEGIN(cuMemcpyDtoHAsync_v2, 1)
  note("download %zu\n", bytes);
  if (!isOf(stream, blockOf(blocks, source, bytes))) result = INVALID_VALUE;
  else result = queueCopy(stream, target, (const void *)(uintptr_t)source, bytes, 1);
  /* To memory that is not pinned the copy is over when the call is. */
  if (result == OK && !blockOf(pinned, (uint64_t)(uintptr_t)target, bytes))
    drain(stream ? stream : &legacy, NULL, 0), result = deadOf();
  END
}
EXPORT Result cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t bytes, void *stream) {
  BEGIN(cuMemcpyDtoDAsync_v2, 1)
  if (!isOf(stream, blockOf(blocks, source, bytes)) || !isOf(stream, blockOf(blocks, target, bytes)))
    result = INVALID_VALUE;
  else result = queueCopy(stream, (void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes, 1);
  END
}
#include "fakePeers.h"
EXPORT Result cuMemsetD8Async(uint64_t target, unsigned char byte, size_t bytes, void *stream) {
  BEGIN(cuMemsetD8Async, 1)
  note("memset %zu\n", bytes);
  if (!blockOf(blocks, target, bytes)) result = INVALID_VALUE;
  else {
    Command *command = push(stream, FILL);
    command->target = (void *)(uintptr_t)target;
    command->byte = byte;
    command->bytes = bytes;
  }
  END
}

EXPORT Result cuStreamCreate(void **stream, unsigned flags) {
  (void)flags;
  BEGIN(cuStreamCreate, 1)
  int i = 0;
  while (i < MOST_STREAMS && streams[i]) i++;
  if (i == MOST_STREAMS) result = OUT_OF_MEMORY;
  else *stream = streams[i] = calloc(1, sizeof(Stream)), streams[i]->device = deviceOf(currentContext), liveHandles++;
  END
}
EXPORT Result cuStreamDestroy_v2(void *stream) {
  pthread_mutex_lock(&mutex);
  drain(stream, NULL, 0);
  for (int i = 0; i < MOST_STREAMS; i++) if (streams[i] == stream) streams[i] = NULL;
  free(stream);
  liveHandles--;
  pthread_mutex_unlock(&mutex);
  return deadOf();
}
EXPORT Result cuStreamSynchronize(void *stream) {
  BEGIN(cuStreamSynchronize, 1) note("sync\n");
  drain(stream ? stream : &legacy, NULL, 0);
  result = deadOf();
  END
}
EXPORT Result cuStreamWaitEvent(void *stream, Event *event, unsigned flags) {
  (void)flags;
  BEGIN(cuStreamWaitEvent, 1)
  Command *command = push(stream, WAIT);
  command->event = event;
  command->generation = event->recorded;
  END
}
EXPORT Result cuEventCreate(Event **event, unsigned flags) {
  BEGIN(cuEventCreate, 1)(void) flags;
  *event = calloc(1, sizeof **event);
  (*event)->device = deviceOf(currentContext);
  liveHandles++;
  END
}
EXPORT Result cuEventDestroy_v2(Event *event) {
  pthread_mutex_lock(&mutex);
  drainAll(); /* others may wait for it */
  free(event);
  liveHandles--;
  pthread_mutex_unlock(&mutex);
  return deadOf();
}
EXPORT Result cuEventRecord(Event *event, void *stream) {
  BEGIN(cuEventRecord, 1)
  Stream *at = stream ? stream : &legacy;
  if (stream && at->device != event->device) result = INVALID_HANDLE;
  else {
    if (event->stream != at)
      drainTo(event, event->recorded); /* a record elsewhere that is still to come would be lost */
    event->stream = at;
    Command *command = push(stream, RECORD);
    command->event = event;
    command->generation = ++event->recorded;
  }
  END
}
EXPORT Result cuEventSynchronize(Event *event) {
  BEGIN(cuEventSynchronize, 1)
  while (isHeld) pthread_cond_wait(&released, &mutex);
  drainTo(event, event->recorded);
  result = deadOf();
  END
}
EXPORT Result cuEventElapsedTime(float *milliseconds, const Event *from, const Event *to) {
  BEGIN(cuEventElapsedTime, 1)
  if (from->reached < from->recorded || to->reached < to->recorded) result = NOT_READY;
  else if (!from->recorded || !to->recorded || from->device != to->device) result = INVALID_HANDLE;
  else *milliseconds = (float)(to->at - from->at);
  END
}

#include "fakeIpcCalls.h"

EXPORT Result cuModuleLoadDataEx(Module **out, const char *image, unsigned count, const int *options, void **values) {
  BEGIN(cuModuleLoadDataEx, 1)
  if (!memcmp(image, "\x7f" "ELF", 4)) image += 64;  /* fakeNvrtc's: a header, then text */
  else if (!strstr(image, ".version")) result = INVALID_IMAGE;
  if (result != OK) {}
  else if (strstr(image, "syntax error")) {
    result = INVALID_PTX;
    for (unsigned i = 0; i < count; i++)
      if (options[i] == 5)
        snprintf(values[i], (size_t)(uintptr_t)values[i + 1],
                 "ptxas fake.ptx, line 3; fatal: Parsing error near 'syntax'");
  } else {
    *out = calloc(1, sizeof **out);
    (*out)->text = strdup(image);
    liveHandles++;
  }
  END
}
EXPORT Result cuModuleUnload(Module *module) {
  pthread_mutex_lock(&mutex);
  drainAll();
  free(module->text);
  free(module);
  liveHandles--;
  pthread_mutex_unlock(&mutex);
  return deadOf();
}
EXPORT Result cuModuleGetFunction(Function **out, Module *module, const char *name) {
  BEGIN(cuModuleGetFunction, 1)
  *out = findFunction(module, name);
  if (!*out) result = NOT_FOUND;
  END
}
EXPORT Result cuFuncLoad(Function *function) { BEGIN(cuFuncLoad, 1) note("load %s\n", function->name); END }
EXPORT Result cuFuncGetAttribute(int *value, int attribute, Function *function) {
  BEGIN(cuFuncGetAttribute, 1)
  static const int VALUES[] = {1024, 0, 64, 0, 24, 0, 90, 0};
  if (attribute == 8) *value = function->dynamicShared;
  else if (attribute < 0 || attribute > 8) result = INVALID_VALUE;
  else *value = attribute == 0 && strstr(function->name, "wide") ? 256 : VALUES[attribute];
  END
}
EXPORT Result cuFuncSetAttribute(Function *function, int attribute, int value) {
  BEGIN(cuFuncSetAttribute, 1)
  if (attribute == 9) {
    if (value < -1 || value > 100) result = INVALID_VALUE;
  } else if (attribute == 14) {
    function->takesLargeClusters = value;
  } else {
    if (attribute != 8 || value > 232448) result = INVALID_VALUE;
    else function->dynamicShared = value;
    note("shared %s %d\n", function->name, value);
  }
  END
}
EXPORT Result cuFuncGetParamInfo(Function *function, size_t index, size_t *offset, size_t *size) {
  BEGIN(cuFuncGetParamInfo, 1)
  if (index >= (size_t)function->count)
    result = INVALID_VALUE, note("refused cuFuncGetParamInfo %s %zu\n", function->name, index);
  else *offset = 0, *size = function->sizes[index];
  END
}
EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocksOut, Function *function, int threads,
                                                          size_t sharedBytes) {
  (void)function;
  BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
  *blocksOut = 2048 / threads;
  if (sharedBytes && (int)(233472 / (sharedBytes + 1024)) < *blocksOut)
    *blocksOut = (int)(233472 / (sharedBytes + 1024));
  END
}

EXPORT Result cuLaunchKernelEx(const Config *config, Function *function, void **arguments, void **extra) {
  BEGIN(cuLaunchKernelEx, 1)
  unsigned cluster = 1;
  int isProgrammatic = 0;
  const Attribute *attributes = config->attributes;
  for (unsigned i = 0; i < config->attributeCount; i++) {
    if (attributes[i].id == 4) cluster = attributes[i].value.cluster[0];
    if (attributes[i].id == 6) isProgrammatic = attributes[i].value.flag;
  }
  note("launch %s grid=%u,%u,%u block=%u shared=%u cluster=%u programmatic=%d T=%d R=%d\n", function->name,
       config->grid[0], config->grid[1], config->grid[2], config->block[0], config->sharedBytes, cluster,
       isProgrammatic, *(int *)arguments[0], *(int *)arguments[1]);
  const int isShared = config->sharedBytes <= 49152 || config->sharedBytes <= (unsigned)function->dynamicShared;
  const int isAllowed = cluster <= (function->takesLargeClusters ? 16u : 8u);
  if (extra || !isShared || !isAllowed || !config->grid[0] || !config->grid[1] || config->grid[0] % cluster ||
      config->block[0] > 1024)
    result = INVALID_VALUE;
  else {
    Command *command = push(config->stream, LAUNCH);
    command->function = function;
    command->config = *config;
    command->cluster = cluster;
    size_t bytes = 0;
    for (int i = 0; i < function->count; i++) command->offsets[i] = bytes, bytes += function->sizes[i];
    command->arguments = malloc(bytes);
    for (int i = 0; i < function->count; i++)
      memcpy(command->arguments + command->offsets[i], arguments[i], function->sizes[i]);
  }
  END
}

EXPORT Result cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, void *base, const uint64_t *sizes,
                                     const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                     int interleave, int swizzle, int promotion, int fill) {
  BEGIN(cuTensorMapEncodeTiled, 1)
  Block *block = blockOf(blocks, (uint64_t)(uintptr_t)base, 1);
  note(
      "map type=%d rank=%u at=%zu sizes=%zu,%zu stride=%zu box=%u,%u steps=%u,%u interleave=%d swizzle=%d promotion=%d "
      "fill=%d\n",
      type, rank, block ? (size_t)((uint64_t)(uintptr_t)base - block->address) : 0, (size_t)sizes[0], (size_t)sizes[1],
      (size_t)strides[0], box[0], box[1], steps[0], steps[1], interleave, swizzle, promotion, fill);
  if (!block || (uintptr_t)map % 64 || strides[0] % 16) result = INVALID_VALUE;
  else {
    memset(map, 0, 128);
    map[0] = (uint64_t)(uintptr_t)base;
    map[1] = sizes[0];
    map[2] = sizes[1];
    map[3] = strides[0];
  }
  END
}
