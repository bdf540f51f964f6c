/* The entry points of fakeIpc.h. */
EXPORT Result cuIpcGetMemHandle(Handle *handle, uint64_t address) {
  BEGIN(cuIpcGetMemHandle, 1)
  const int i = sharedAt(address);
  note("share\n");
  if (i < 0 || shared[i].isForeign) result = INVALID_VALUE;
  else
    memset(handle, 0, sizeof *handle), memcpy(handle, &shared[i].named, sizeof shared[i].named),
        shared[i].wasShared = 1;
  END
}
EXPORT Result cuIpcOpenMemHandle_v2(uint64_t *address, Handle handle, unsigned flags) {
  BEGIN(cuIpcOpenMemHandle_v2, 1)
  Named named;
  memcpy(&named, &handle, sizeof named);
  Block *block = freeBlock(blocks);
  unsigned char *start = NULL;
  note("open\n");
  if (flags != 1 || !block) result = INVALID_VALUE;
  else if (atoi(named.name) == (int)getpid()) result = INVALID_CONTEXT;
  else if (!ipcFolder[0] || !(start = mapNamed(&named, 0)) || !keep(start, 0, &named, 1)) result = INVALID_HANDLE;
  else {
    *address = (uint64_t)(uintptr_t)start;
    *block = (Block){.address = *address, .bytes = named.bytes, .device = deviceOf(currentContext)};
    liveHandles++;
  }
  END
}
EXPORT Result cuIpcCloseMemHandle(uint64_t address) {
  pthread_mutex_lock(&mutex);
  Block *block = blockOf(blocks, address, 1);
  const int i = sharedAt(address);
  const int isKnown = block && i >= 0 && shared[i].isForeign;
  if (isKnown) {
    munmap(shared[i].start, shared[i].bytes);
    shared[i].start = NULL;
    block->bytes = 0;
    liveHandles--;
  }
  pthread_mutex_unlock(&mutex);
  return isKnown ? OK : INVALID_VALUE;
}
EXPORT Result cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address) {
  BEGIN(cuMemGetAddressRange_v2, 1)
  const Block *block = blockOf(blocks, address, 1);
  if (!block) result = INVALID_VALUE;
  else *base = block->address, *bytes = block->bytes;
  END
}
