/** Device code that lays out weights in groups (ir/groups.ts). */

export const PACK_GROUPS = 'tw_pack_groups';

/** Comes after the text of packKernels.ts, whose functions and jobs it uses. */
export const PACK_GROUPS_SOURCE = String.raw`
/**
 * Weights in groups: the codes of a range of rows, or with isScaled the words of their scales. stride: columns of a
 * group. end: rows of the weight. source: codes as f32, or the words; or what is encoded. Made-up codes are uniform,
 * around 8.
 */
extern "C" __global__ void tw_pack_groups(const void *jobs, const void *source, void *weight, const void *) {
  const tw_pack_job job = *(const tw_pack_job *)jobs;
  const int inBlock = 128 / job.stride, words = 128 + 8 * inBlock;
  const int count = job.isScaled != 0 ? job.k / job.stride : job.k / 8;
  const unsigned made = (tw_to_bf16(tw_product(job.factor, 8192.0f)) << 16) | 8u;
  for (int row = blockIdx.y; row < job.rows; row += gridDim.y) {
    const int logical = tw_ordered(job.row + row, job.headDim, job.rotated, job.interleaved);
    const long long physical = tw_physical(logical, job.pairing, job.width, job.span);
    unsigned *const blocks = (unsigned *)weight + physical / 8 * words;
    const long long next = (long long)(job.end / 8) * words;
    const int within = (int)(physical % 8);
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
      if (job.isScaled != 0) {
        const unsigned bits = job.kind == 0   ? ((const unsigned *)source)[(long long)row * count + at]
                              : job.kind == 3 ? tw_scale_word(tw_encoded_of(jobs), source, row, at)
                                              : made;
        blocks[at / inBlock * next + 128 + within * inBlock + at % inBlock] = bits;
        continue;
      }
      const int first = at / 16 * 128 + at % 4 * 32 + at % 16 / 4 * 2;
      unsigned bits = 0;
      for (int i = 0; i < 8; i++) {
        const long long index = (long long)row * job.k + first + i / 2 * 8 + i % 2;
        const unsigned code =
            job.kind == 0   ? (unsigned)(int)((const float *)source)[index]
            : job.kind == 3 ? (unsigned)(int)tw_decoded(tw_encoded_of(jobs), source, row, first + i / 2 * 8 + i % 2)
                            : (unsigned)(tw_mix(job.start + (job.first + index) * 0x9e3779b97f4a7c15ull) >> 60);
        bits |= code << (4 * (i / 2) + 16 * (i % 2));
      }
      blocks[at / 16 * next + within * 16 + at % 16] = bits;
    }
  }
}
`;
