/*
 * Kernels that a test brings along: for a kernel NAME, `void host_NAME(int T, int R, const unsigned *grid, void
 * **pointers)` in one of the libraries given to fakeCudaHost.
 */
#include <dlfcn.h>

enum { MOST_LIBRARIES = 8 };
static void *hostLibraries[MOST_LIBRARIES];
static int hostLibraryCount;

EXPORT int fakeCudaHost(const char *path) {
  void *library = hostLibraryCount < MOST_LIBRARIES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return 0;
  hostLibraries[hostLibraryCount++] = library;
  return 1;
}

/* Runs it if a library has it. Every pointer must be of the device. */
static int runOnHost(const Command *command, int T, int R) {
  char symbol[192];
  snprintf(symbol, sizeof symbol, "host_%s", command->function->name);
  for (int i = 0; i < hostLibraryCount; i++) {
    void (*kernel)(int, int, const unsigned *, void **) = (void (*)(int, int, const unsigned *, void **))dlsym(hostLibraries[i], symbol);
    if (!kernel) continue;
    void *pointers[MOST_PARAMETERS];
    for (int p = 2; p < command->function->count; p++) {
      if (command->function->sizes[p] != 8) break;
      pointers[p - 2] = pointerOf(command, p, 1);
      if (!pointers[p - 2]) return ILLEGAL_ADDRESS;
    }
    const unsigned grid[2] = {command->config.grid[0], command->config.grid[1]};
    kernel(T, R, grid, pointers);
    return OK;
  }
  return OK;
}
