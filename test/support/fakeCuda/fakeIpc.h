/*
 * Device memory that other processes can open: with ipc=FOLDER, allocations are files of that folder, mapped. As with a
 * real driver, what was freed is rubbish to those who still have it open, small allocations lie inside one that the
 * handle stands for, a process cannot open its own memory, and what a dead process shared stays for those who have it
 * open. A memory that was shared and is freed leaves a line in FOLDER/hashes: the FNV-1a hash of what was in it.
 */
#include <sys/mman.h>
#include <sys/stat.h>

enum { SMALL_ALLOCATION = 2 << 20, SMALL_OFFSET = 4096, HANDLE_BYTES = 64 };
typedef struct { unsigned char bytes[HANDLE_BYTES]; } Handle;
typedef struct { char name[40]; uint64_t bytes; } Named;
static char ipcFolder[512];
/* start: of the mapping; the memory itself may begin later. */
static struct {
  uint64_t address;
  unsigned char *start;
  size_t bytes;
  Named named;
  int isForeign, wasShared;
} shared[MOST];

static int sharedAt(uint64_t address) {
  for (int i = 0; i < MOST; i++) if (shared[i].start && shared[i].address == address) return i;
  return -1;
}

static unsigned char *mapNamed(const Named *named, int flags) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", ipcFolder, named->name);
  const int file = open(path, O_RDWR | flags, 0600);
  if (file < 0) return NULL;
  if ((flags & O_CREAT) && ftruncate(file, (off_t)named->bytes)) return close(file), NULL;
  unsigned char *start = mmap(NULL, named->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return start == MAP_FAILED ? NULL : start;
}

static void *keep(unsigned char *start, size_t offset, const Named *named, int isForeign) {
  for (int i = 0; i < MOST; i++) {
    if (shared[i].start) continue;
    shared[i].address = (uint64_t)(uintptr_t)(start + offset);
    shared[i].start = start;
    shared[i].bytes = named->bytes;
    shared[i].named = *named;
    shared[i].isForeign = isForeign;
    shared[i].wasShared = 0;
    return start + offset;
  }
  return NULL;
}

static void *deviceAlloc(size_t bytes) {
  static int count;
  if (!ipcFolder[0]) return aligned_alloc(256, (bytes + 255) / 256 * 256);
  const size_t offset = bytes < SMALL_ALLOCATION ? SMALL_OFFSET : 0;
  Named named = {.bytes = offset + bytes};
  snprintf(named.name, sizeof named.name, "%d.%d", (int)getpid(), count++);
  unsigned char *start = mapNamed(&named, O_CREAT | O_EXCL);
  return start ? keep(start, offset, &named, 0) : NULL;
}

static void noteHash(const unsigned char *bytes, size_t count) {
  char path[600];
  snprintf(path, sizeof path, "%s/hashes", ipcFolder);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  FILE *file = fopen(path, "a");
  if (!file) return;
  fprintf(file, "%016llx\n", (unsigned long long)hash);
  fclose(file);
}

static void deviceFree(void *memory) {
  const int i = sharedAt((uint64_t)(uintptr_t)memory);
  if (i < 0) {
    free(memory);
    return;
  }
  char path[600];
  snprintf(path, sizeof path, "%s/%s", ipcFolder, shared[i].named.name);
  if (shared[i].wasShared) noteHash(shared[i].start, shared[i].bytes);
  memset(shared[i].start, 0xDD, shared[i].bytes);
  munmap(shared[i].start, shared[i].bytes);
  unlink(path);
  shared[i].start = NULL;
}
