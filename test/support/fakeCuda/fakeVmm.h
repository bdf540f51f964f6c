/*
 * Addresses without memory, and memory that is put behind them. What is not mapped, or may not be accessed yet, cannot
 * be touched: a kernel or copy that does ends the process. New memory is rubbish. As with a real driver, memory stays
 * while it is mapped, a mapping goes as it came, and addresses with a mapping cannot be given back.
 */
enum { GRANULARITY = 2 << 20, MOST_RANGES = 256, MOST_PIECES = 4096 };
typedef struct { int type, id; } Location;
typedef struct { int type, handleTypes; Location location; void *windows; unsigned char flags[8]; } Properties;
typedef struct { Location location; int flags; } Access;
static struct { unsigned char *start; size_t bytes; Block *block; } ranges[MOST_RANGES];
/* address: 0 where it is not mapped. */
static struct { size_t bytes; int device, isReleased, isOpen; uint64_t address; } pieces[MOST_PIECES];

static int isDeviceMemory(const Properties *properties) {
  return properties->type == 1 && !properties->handleTypes && !properties->windows && properties->location.type == 1 &&
         properties->location.id == deviceOf(currentContext);
}

static int rangeOf(uint64_t address, size_t bytes) {
  for (int i = 0; i < MOST_RANGES; i++) {
    const uint64_t start = (uint64_t)(uintptr_t)ranges[i].start;
    if (start && address >= start && address + bytes <= start + ranges[i].bytes) return i;
  }
  return -1;
}

static int pieceAt(uint64_t address) {
  for (int i = 0; i < MOST_PIECES; i++) if (pieces[i].bytes && pieces[i].address == address) return i;
  return -1;
}

/* The part of a range from its start on that can be accessed: memory of the device like any other. */
static void measure(int range) {
  size_t bytes = 0;
  for (int i; bytes < ranges[range].bytes; bytes += pieces[i].bytes) {
    i = pieceAt((uint64_t)(uintptr_t)ranges[range].start + bytes);
    if (i < 0 || !pieces[i].isOpen) break;
  }
  ranges[range].block->bytes = bytes;
}

static void forget(int piece) {
  if (!pieces[piece].isReleased || pieces[piece].address) return;
  usedBytes[pieces[piece].device] -= pieces[piece].bytes;
  pieces[piece].bytes = 0;
  liveHandles--;
}

EXPORT Result cuMemGetAllocationGranularity(size_t *bytes, const Properties *properties, int option) {
  BEGIN(cuMemGetAllocationGranularity, 1)
  if (option || !isDeviceMemory(properties)) result = INVALID_VALUE;
  else *bytes = GRANULARITY;
  END
}
EXPORT Result cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags) {
  BEGIN(cuMemAddressReserve, 1)
  int i = 0;
  while (i < MOST_RANGES && ranges[i].start) i++;
  Block *block = freeBlock(blocks);
  unsigned char *start = MAP_FAILED;
  if (!mapsMemory || alignment || wanted || flags || !bytes || bytes % GRANULARITY) result = INVALID_VALUE;
  else if (i == MOST_RANGES || !block ||
           (start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED)
    result = OUT_OF_MEMORY;
  else {
    ranges[i].start = start;
    ranges[i].bytes = bytes;
    ranges[i].block = block;
    *address = (uint64_t)(uintptr_t)start;
    *block = (Block){.address = *address, .device = deviceOf(currentContext), .isRange = 1};
    liveHandles++;
    note("reserve %zu\n", bytes);
  }
  END
}
EXPORT Result cuMemAddressFree(uint64_t address, size_t bytes) {
  BEGIN(cuMemAddressFree, 0)
  const int i = rangeOf(address, bytes);
  int isMapped = 0;
  for (uint64_t at = address; at < address + bytes; at += GRANULARITY) isMapped |= pieceAt(at) >= 0;
  if (i < 0 || ranges[i].bytes != bytes || isMapped) result = INVALID_VALUE;
  else {
    munmap(ranges[i].start, bytes);
    *ranges[i].block = (Block){0};
    ranges[i].start = NULL;
    liveHandles--;
    note("unreserve %zu\n", bytes);
  }
  END
}
EXPORT Result cuMemCreate(uint64_t *piece, size_t bytes, const Properties *properties, uint64_t flags) {
  BEGIN(cuMemCreate, 1)
  int i = 0;
  while (i < MOST_PIECES && pieces[i].bytes) i++;
  if (flags || !bytes || bytes % GRANULARITY || !isDeviceMemory(properties)) result = INVALID_VALUE;
  else if (i == MOST_PIECES || usedBytes[deviceOf(currentContext)] + bytes > (size_t)totalBytes) result = OUT_OF_MEMORY;
  else {
    pieces[i].bytes = bytes;
    pieces[i].device = deviceOf(currentContext);
    pieces[i].isReleased = pieces[i].isOpen = 0;
    pieces[i].address = 0;
    usedBytes[pieces[i].device] += bytes;
    *piece = (uint64_t)i + 1;
    liveHandles++;
  }
  END
}
EXPORT Result cuMemRelease(uint64_t piece) {
  BEGIN(cuMemRelease, 0)
  if (!piece || piece > MOST_PIECES || !pieces[piece - 1].bytes || pieces[piece - 1].isReleased) result = INVALID_VALUE;
  else pieces[piece - 1].isReleased = 1, forget((int)piece - 1);
  END
}
EXPORT Result cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t piece, uint64_t flags) {
  BEGIN(cuMemMap, 1)
  if (offset || flags || !piece || piece > MOST_PIECES || pieces[piece - 1].bytes != bytes ||
      pieces[piece - 1].address || address % GRANULARITY % 4096 || rangeOf(address, bytes) < 0 || pieceAt(address) >= 0)
    result = INVALID_VALUE;
  else {
    pieces[piece - 1].address = address;
    note("map %zu\n", bytes);
  }
  END
}
EXPORT Result cuMemSetAccess(uint64_t address, size_t bytes, const Access *access, size_t count) {
  BEGIN(cuMemSetAccess, 1)
  const int range = rangeOf(address, bytes);
  if (range < 0 || count != 1 || access->flags != 3 || access->location.type != 1 ||
      access->location.id != ranges[range].block->device)
    result = INVALID_VALUE;
  for (size_t at = 0; result == OK && at < bytes;) {
    const int i = pieceAt(address + at);
    if (i < 0) result = INVALID_VALUE;
    else pieces[i].isOpen = 1, at += pieces[i].bytes;
  }
  if (result == OK) {
    mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE);
    memset((void *)(uintptr_t)address, 0xCD, bytes);
    measure(range);
  }
  END
}
EXPORT Result cuMemUnmap(uint64_t address, size_t bytes) {
  BEGIN(cuMemUnmap, 1)
  const int i = pieceAt(address);
  if (i < 0 || pieces[i].bytes != bytes) result = INVALID_VALUE;
  else {
    /* Whoever still uses it finds that it is gone. */
    mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    pieces[i].address = 0;
    measure(rangeOf(address, bytes));
    forget(i);
    note("unmap %zu\n", bytes);
  }
  END
}
