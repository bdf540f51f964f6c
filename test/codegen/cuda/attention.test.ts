import { describe, expect, it } from 'vitest';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { randomArray, randomSource } from '../harness.js';
import { randomTrees } from '../modules.js';
import type { AttentionData, Shape } from './attentionHarness.js';
import { attentionModule, emulate } from './attentionHarness.js';

const MMA = { kind: 'attention', skeleton: 'mma', queries: 64, keys: 64 } as const;
const SIMT = { kind: 'attention', skeleton: 'simt', queries: 16, keys: 32 } as const;

function dataOf(s: Shape, subtreeEnd: Float64Array, seed: number, row?: Float64Array): AttentionData {
  const T = subtreeEnd.length;
  const random = randomSource(seed);
  const make = (heads: number, scale: number): Float64Array => randomArray(random, T * heads * s.headDim, scale);
  const inputs = new Map([['q', make(s.heads, 4)], ['k', make(s.kvHeads, 4)], ['v', make(s.kvHeads, 1)], ['subtreeEnd', subtreeEnd]]);
  if (row !== undefined) inputs.set('row', row);
  return { T, inputs };
}

describe('smoke', () => {
  for (const schedule of [MMA, SIMT]) {
    it(schedule.skeleton, () => {
      const s: Shape = { heads: 2, kvHeads: 1, headDim: 64, dtype: 'bf16' };
      const data = dataOf(s, randomTrees(150, 3).subtreeEnd, 1);
      const t0 = Date.now();
      const got = emulate(s, schedule, data);
      console.log(Date.now() - t0);
      const { module, kernel } = attentionModule(s);
      const want = interpretKernel(kernel, { sizes: { T: 150, R: 0 }, buffers: got.buffers, decls: module }).get('out')!;
      let worst = 0;
      got.out.forEach((x, i) => { const e = Math.abs(x - want[i]!); if (!(e <= worst)) worst = e; });
      console.log(worst);
      expect(worst).toBeLessThan(1e-2);
    });
  }
});
