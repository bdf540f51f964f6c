/* The fake driver's copies between devices: only to a device whose memory was opened to the source's context. */
EXPORT Result cuMemcpyPeerAsync(uint64_t target, void *targetContext, uint64_t source, void *sourceContext,
                                size_t bytes, void *stream) {
  BEGIN(cuMemcpyPeerAsync, 1)
  const int from = deviceOf(sourceContext), to = deviceOf(targetContext);
  const Block *read = blockOf(blocks, source, bytes), *written = blockOf(blocks, target, bytes);
  note("peer %d to %d %zu\n", from, to, bytes);
  if (!isOf(stream, read) || !written || read->device != from || written->device != to || !reaches[from][to])
    result = INVALID_VALUE;
  else result = queueCopy(stream, (void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes, 1);
  END
}
EXPORT Result cuDeviceCanAccessPeer(int *can, int from, int to) {
  BEGIN(cuDeviceCanAccessPeer, 0) *can = peers && from != to;
  END
}
EXPORT Result cuCtxEnablePeerAccess(void *context, unsigned flags) {
  BEGIN(cuCtxEnablePeerAccess, 1)
  int *reach = &reaches[deviceOf(currentContext)][deviceOf(context)];
  if (flags || !peers) result = PEERS_UNSUPPORTED;
  else if (*reach) result = PEERS_ALREADY;
  else *reach = 1;
  END
}
