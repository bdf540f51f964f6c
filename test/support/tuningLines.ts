/** Lines of tuning records of an imaginary GPU. */

const MACHINE = { gpu: 'NVIDIA Made/132', arch: 'sm_90a', driver: 13_000, compiler: 'nvcc 13', codegen: 'ab' };
const place = (key: string, tokens: number): object => ({
  ...{ version: 1, key, cuda: MACHINE },
  bucket: { extents: { T: tokens }, longest: 1 },
});
const schedule = (tile: number): object => ({ kind: 'gemm', tile });
const at = (second: number): { readonly timestamp: string } => ({
  timestamp: new Date(1_700_000_000_000 + 1000 * second).toISOString(),
});

/** `second`: after the first trial. No `seconds`: the schedule failed. */
export const trialLine = (key: string, tokens: number, tile: number, seconds: readonly number[], second: number) => ({
  ...place(key, tokens),
  ...{ schedule: schedule(tile), seconds, ...at(second) },
  ...(seconds.length === 0 ? { failure: 'its result differs' } : {}),
});

/** A kernel of 10¹² FLOPs whose default has a tile of 64. */
export const jobLine = (key: string, tokens: number, count = 60, kernel = 'layers.0.ffn.down') => ({
  ...place(key, tokens),
  job: {
    ...{ kernel, count, signature: key, schedule: schedule(64) },
    ...{ flops: 1e12, bytes: 1e9, estimateSeconds: 0.002 },
    product: { dtype: 'bf16', m: tokens, n: 8192, k: 4096 },
  },
  ...at(0),
});

export const finalLine = (
  key: string,
  tokens: number,
  first: readonly [tile: number, seconds: number],
  second: readonly [tile: number, seconds: number],
  marginSeconds: number,
) => ({
  ...place(key, tokens),
  bucket: { extents: { T: tokens, R: tokens }, longest: 256 },
  final: [first, second].map(([tile, seconds]) => ({ schedule: schedule(tile), seconds })),
  ...{ marginSeconds, ...at(99) },
});

export const peaksLine = () => ({
  ...{ version: 1, cuda: MACHINE, ...at(0) },
  peaks: {
    arithmetic: { perSecond: 1e15, source: 'nominal' },
    memory: { perSecond: 4e12, source: 'measured' },
  },
});

/** The vendor's time for the product of `jobLine` at 1,024 tokens. */
export const rivalLine = () => ({
  version: 1,
  rival: {
    library: 'cuBLASLt 13.0',
    gpu: MACHINE.gpu,
    driver: MACHINE.driver,
    dtype: 'bf16',
    m: 1024,
    n: 8192,
    k: 4096,
  },
  ...{ name: 'nvjet', seconds: [0.0024], ...at(5) },
});
