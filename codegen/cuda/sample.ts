/** The kernel that chooses tokens from logits: a block for each row, which never leaves the device. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { SampleKernel } from '../../ir/kernel.js';
import { sampleValues } from '../sample.js';
import { gumbelText } from './text/draw.js';
import { kernelHead, type CudaOperands, type EmittedCuda } from './text/operands.js';
import { render } from './text/templates.js';

/** Bins of a histogram, and entries of the list of those that share a bin. */
const BINS = 1024;

/** Bytes of tw_room: three parts of each bin, a sum for each thread, the list, the best of each warp, and the rest. */
const roomBytes = (threads: number): number => BINS * (3 * 4 + 8) + threads * 8 + 16 + (threads / 32) * 12 + 32;

export function emitSample(
  kernel: SampleKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { threads } = schedule;
  const source = render('sample', {
    // Logits that a block has changed are read again.
    head: kernelHead({
      symbol,
      extents: operands.extents,
      parameters,
      tensorMaps: [],
      threads,
      isRestrict: false,
    }),
    noise: gumbelText(),
    rows: kernel.rows,
    entries: operands.rowsOf(kernel.inputs.entryToken).extent,
    threads,
    warps: threads / 32,
    perThread: Math.ceil(BINS / threads),
    ...sampleValues(kernel, operands),
  });
  return {
    source,
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: {
      threads,
      sharedBytes: roomBytes(threads),
      cluster: 1,
      gridX: { kind: 'tiles', extent: kernel.rows, per: 1, times: 1 },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}
