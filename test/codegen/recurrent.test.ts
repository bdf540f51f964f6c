/** Kernels of recurrent layers against float64, over trees: on the host, and over fibres. */
import { describe, expect, it } from 'vitest';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { expectSame } from '../support/numbers.js';
import { emulateModule } from './cuda/emulate.js';
import { RUNNABLE, runGenerated } from './harness.js';
import { madeUpTrees, type ScanCase, scanInputs, scanModule } from './recurrentCases.js';

const DELTA: ScanCase = {
  ...{ rule: 'delta', mask: 'path', keyHeads: 1, heads: 2, keyDim: 20, valueDim: 20 },
  ...{ epsilon: 1e-6, scale: 0.25 },
};
const ADD: ScanCase = { rule: 'add', mask: 'column', keyHeads: 2, heads: 2, keyDim: 16, valueDim: 12, hasSkip: true };
const CASES = [DELTA, ADD];

const tensors = (own: ScanCase) =>
  new Map([['d', { rows: own.heads, columns: 1, data: Float64Array.from({ length: own.heads }, (_, i) => i - 0.5) }]]);

const sizesOf = (inputs: ReadonlyMap<string, Float64Array>, rows: number) => ({
  T: rows,
  R: 1,
  ...(inputs.has('key') ? { C: inputs.get('key')!.length } : {}),
});

/** The values of every buffer after both kernels. */
type Run = (own: ScanCase, parents: readonly number[], names?: readonly number[]) => ReadonlyMap<string, Float64Array>;

const host: Run = (own, parents, names) => {
  const module = scanModule(own);
  const inputs = scanInputs(module, parents, names);
  const isa = RUNNABLE[0]!;
  return runGenerated(module, {
    sizes: sizesOf(inputs, parents.length),
    inputs,
    tensors: tensors(own),
    schedules: module.kernels.map(() => ({ kind: 'loop', isa, rows: 1 }) as const),
    workers: 2,
    isQuick: true,
    tokensCapacity: 1024,
  }).values;
};

const fibres: Run = (own, parents, names) => {
  const module = scanModule(own);
  const inputs = scanInputs(module, parents, names);
  return emulateModule(module, {
    sizes: sizesOf(inputs, parents.length),
    inputs,
    tensors: tensors(own),
    schedules: module.kernels.map(() => ({ kind: 'loop', threads: 128 }) as const),
    tokensCapacity: 1024,
  }).values;
};

const expected: Run = (own, parents, names) => {
  const module = scanModule(own);
  verifyKernels(module);
  verifyIndices(module);
  const inputs = scanInputs(module, parents, names);
  return interpretModule(module, { sizes: sizesOf(inputs, parents.length), buffers: inputs, tensors: tensors(own) });
};

describe.each([
  ['host', host],
  ['fibres', fibres],
] as const)('scans on %s', (_, run) => {
  it.each(CASES)('compute what $rule says over $mask', (own) => {
    const parents = madeUpTrees(45, 7);
    const [got, wanted] = [run(own, parents), expected(own, parents)];
    for (const name of ['before_1', 'before_3']) expect(got.get(name), name).toEqual(wanted.get(name));
    wanted.get('out')!.forEach((x, i) => expect(Math.abs(got.get('out')![i]! - x), `${i}`).toBeLessThan(2e-5));
  });

  it('give a path the same bits alone, and behind more forks than are kept', () => {
    // A comb: each row of a chain parts, and the branches come in reverse order, the deepest first.
    const chain = 24;
    const parents = [...Array.from({ length: chain }, (_, row) => row - 1)];
    for (let row = chain - 2; row >= 0; row--) parents.push(row, parents.length);
    const all = run(DELTA, parents).get('out')!;
    const width = DELTA.heads * DELTA.valueDim;
    for (const leaf of [chain + 1, chain + 11, parents.length - 1]) {
      const path: number[] = [];
      for (let at = leaf; at >= 0; at = parents[at]!) path.unshift(at);
      const alone = run(
        DELTA,
        path.map((_, i) => i - 1),
        path,
      ).get('out')!;
      path.forEach((row, i) =>
        expectSame(
          alone.subarray(i * width, (i + 1) * width),
          all.subarray(row * width, (row + 1) * width),
          `row ${row} of leaf ${leaf}`,
        ),
      );
    }
  });
});
