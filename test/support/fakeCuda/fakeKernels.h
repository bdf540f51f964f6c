/*
 * The fake driver's kernels: those of cudaKernels.ts, computed on the host, by name, and those of hostKernels.h.
 * Any other does nothing.
 */
static int findSizes(const char *parameters, size_t *sizes) {
  const char *end = strchr(parameters, ')');
  int count = 0;
  for (const char *at = parameters; (at = strstr(at, ".param")) != NULL && at < end && count < MOST_PARAMETERS;
       at += 6) {
    const char *stop = strpbrk(at, ",)");
    size_t size = 0;
    const char *array = strstr(at, ".b8"), *wide = strstr(at, ".u64"), *narrow = strstr(at, ".u32");
    if (array && array < stop) size = strtoul(strchr(array, '[') + 1, NULL, 10);
    else if (wide && wide < stop) size = 8;
    else if (narrow && narrow < stop) size = 4;
    sizes[count++] = size;
  }
  return count;
}

/* Of `__global__ … NAME(int T, int R, bf16 *x, …, const __grid_constant__ TensorMap x_map)`. */
static int findSizesOfC(const char *parameters, size_t *sizes) {
  const char *end = strchr(parameters, ')');
  int count = 0;
  for (const char *at = parameters; at < end && count < MOST_PARAMETERS;) {
    const char *comma = strchr(at, ',');
    const char *stop = comma && comma < end ? comma : end;
    const char *star = memchr(at, '*', (size_t)(stop - at));
    const char *map = memmem(at, (size_t)(stop - at), "TensorMap", 9);
    sizes[count++] = star ? 8 : map ? 128 : 4;
    at = stop + 1;
  }
  return count;
}

static Function *findFunction(Module *module, const char *name) {
  char pattern[192];
  const int isPtx = strstr(module->text, ".version") != NULL;
  snprintf(pattern, sizeof pattern, isPtx ? ".entry %s(" : " %s(", name);
  const char *at = strstr(module->text, pattern);
  if (!at && !isPtx) {
    /* Units have a line for the name. */
    pattern[0] = '\n';
    at = strstr(module->text, pattern);
  }
  if (!at) return NULL;
  for (int i = 0; i < 64; i++) {
    Function *function = &module->functions[i];
    if (function->isUsed && !strcmp(function->name, name)) return function;
    if (function->isUsed) continue;
    snprintf(function->name, sizeof function->name, "%s", name);
    function->count = (isPtx ? findSizes : findSizesOfC)(at + strlen(pattern), function->sizes);
    function->isUsed = 1;
    return function;
  }
  return NULL;
}

/* The pointer that is parameter `index`, if `bytes` from it are memory of the device. */
static void *pointerOf(const Command *command, int index, size_t bytes) {
  uint64_t address;
  memcpy(&address, command->arguments + command->offsets[index], 8);
  const Block *block = blockOf(blocks, address, bytes);
  return block && block->device == command->device ? (void *)(uintptr_t)address : NULL;
}

/* How many ints a kernel takes before its pointers. */
static int intsOf(const Function *function) {
  int count = 0;
  while (count < function->count && function->sizes[count] == 4) count++;
  return count;
}

#include "hostKernels.h"

/* What a kernel that was told to leaves behind. */
static void spoil(const Command *command) {
  for (int i = 0; i < spoiltCount; i++) {
    float *out = strcmp(spoilt[i].kernel, command->function->name)
                     ? NULL
                     : pointerOf(command, intsOf(command->function) + spoilt[i].pointer, 64);
    if (!out) continue;
    if (!spoilt[i].at) memcpy(spoilt[i].before, spoilt[i].at = out, sizeof spoilt[i].before);
    for (int k = 0; k < 16; k++) out[k] = __builtin_nanf("");
  }
}

static int runKernel(const Command *command) {
  const char *name = command->function->name;
  int32_t T = 0, R = 0;
  if (intsOf(command->function) > 0) memcpy(&T, command->arguments, 4);
  if (intsOf(command->function) > 1) memcpy(&R, command->arguments + 4, 4);
  const size_t blocksX = command->config.grid[0], blocksY = command->config.grid[1], threads = command->config.block[0];
  if (!strcmp(name, "tw_trap")) return ILLEGAL_ADDRESS;
  if (!strcmp(name, "tw_hang")) return LAUNCH_TIMEOUT;
  if (!strcmp(name, "tw_affine") || !strcmp(name, "tw_after") || !strcmp(name, "tw_shared")) {
    const int32_t *in = pointerOf(command, 2, (size_t)T * 4);
    int32_t *out = pointerOf(command, 3, (size_t)T * 4);
    if (!in || !out) return ILLEGAL_ADDRESS;
    const int factor = !strcmp(name, "tw_affine") ? 2 : 1;
    for (size_t i = 0; i < blocksX * threads && i < (size_t)T; i++) out[i] = factor * in[i] + 1;
  }
  if (!strcmp(name, "tw_rows")) {
    const int32_t *in = pointerOf(command, 2, (size_t)R * 4);
    float *out = pointerOf(command, 3, (size_t)R * 4);
    if (!in || !out) return ILLEGAL_ADDRESS;
    for (size_t i = 0; i < blocksX * threads && i < (size_t)R; i++) out[i] = -(float)in[i];
  }
  if (!strcmp(name, "tw_grid") || !strcmp(name, "tw_cluster")) {
    int32_t *out = pointerOf(command, 2, blocksX * blocksY * 4);
    if (!out) return ILLEGAL_ADDRESS;
    const int isCluster = !strcmp(name, "tw_cluster");
    for (size_t i = 0; i < blocksX * blocksY; i++)
      out[i] = isCluster ? (int32_t)command->cluster : (int32_t)(blocksX * 1000 + blocksY);
  }
  if (!strcmp(name, "tw_tile")) { /* the first 8 × 16 floats of the map's view, zeros outside */
    float *out = pointerOf(command, 2, 8 * 16 * 4);
    uint64_t map[4];
    memcpy(map, command->arguments + command->offsets[3], sizeof map);
    if (!out) return ILLEGAL_ADDRESS;
    for (size_t i = 0; i < 128; i++) {
      const size_t row = i / 16, column = i % 16;
      out[i] = row < map[2] && column < map[1] ? *(const float *)(uintptr_t)(map[0] + row * map[3] + column * 4) : 0;
    }
  }
  const int outcome = runOnHost(command);
  if (outcome == OK) spoil(command);
  return outcome;
}
