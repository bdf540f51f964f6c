/*
 * Kernels that a test brings along: for a kernel NAME, `void host_NAME(const int *sizes, const unsigned *grid,
 * void **pointers)` in one of the libraries given to fakeCudaHost. Sizes are the ints that come before the pointers.
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
static int runOnHost(const Command *command) {
  char symbol[192];
  snprintf(symbol, sizeof symbol, "host_%s", command->function->name);
  for (int i = 0; i < hostLibraryCount; i++) {
    void (*kernel)(const int *, const unsigned *, void **) =
        (void (*)(const int *, const unsigned *, void **))dlsym(hostLibraries[i], symbol);
    if (!kernel) continue;
    void *pointers[MOST_PARAMETERS];
    const int first = intsOf(command->function);
    for (int p = first; p < command->function->count; p++) {
      if (command->function->sizes[p] != 8) break;
      pointers[p - first] = pointerOf(command, p, 1);
      if (!pointers[p - first]) return ILLEGAL_ADDRESS;
    }
    const unsigned grid[2] = {command->config.grid[0], command->config.grid[1]};
    int sizes[MOST_PARAMETERS];
    memcpy(sizes, command->arguments, (size_t)first * sizeof *sizes);
    kernel(sizes, grid, pointers);
    return OK;
  }
  return OK;
}
