/** Scratch memory of attention over paths on a CPU: as much as the longest path needs, whatever the lists of a call. */
import { expect, it } from 'vitest';
import { defaultSchedule, emitKernel } from '../../codegen/cpu/index.js';
import { kernelAt, stepBucket, stepModule } from '../autotune/fixture.js';

it('does not grow with the keys of all paths', () => {
  const module = stepModule();
  const kernel = module.kernels.find(({ anchor }) => anchor === 'attention')!;
  const bytesOf = (lists: number): number => {
    const { extents, longest } = stepBucket(64, 64);
    const capacity = { ...extents, C: lists };
    const schedule = defaultSchedule(
      kernel,
      module,
      { isas: ['avx2'], l1: 32 << 10, l2: 1 << 20 },
      { extents, longest },
    );
    return emitKernel(kernelAt(module, kernel.path), module, schedule, capacity).scratchBytes;
  };
  const rows = module.buffers.find(({ name }) => name === (kernel.anchor === 'attention' ? kernel.k : ''))!.rows;
  expect(rows).toBeTypeOf('number');
  expect(bytesOf(524_288)).toBe(bytesOf(Number(rows)));
  expect(bytesOf(16)).toBeLessThan(bytesOf(Number(rows)));
});
