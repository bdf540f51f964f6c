  /* The root above the first query, which is the first key that it sees, and the root's end. */
  int root = 0x7fffffff, stop = 0;
#pragma unroll 8
  for (int i = threadIdx.x * 4; i <= lowest; i += THREADS * 4) {
    const tw_u4 e = *(const tw_u4 *)(end + i);
    int at = 0x7fffffff, end_at = 0;
    if ((int)e.w > lowest) { at = i + 3; end_at = (int)e.w; }
    if ((int)e.z > lowest) { at = i + 2; end_at = (int)e.z; }
    if ((int)e.y > lowest) { at = i + 1; end_at = (int)e.y; }
    if ((int)e.x > lowest) { at = i; end_at = (int)e.x; }
    if (at < root) { root = at; stop = end_at; }
  }
  const int first_root = __reduce_min_sync(0xffffffffu, root);
  if (root == first_root && (root != 0x7fffffff || lane == 0)) {
    s_root[warp] = root;
    s_stop[warp] = stop;
  }
  __syncthreads();
  root = lowest;
  stop = root + 1;
  for (int w = 0; w < WARPS; w++) {
    if (s_root[w] <= root) {
      root = s_root[w];
      stop = s_stop[w];
    }
  }
