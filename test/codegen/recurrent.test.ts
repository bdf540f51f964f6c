/** Kernels of recurrent layers against float64, over trees: on the host, and over fibres. */
import { describe, expect, it } from 'vitest';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { cudaNumerics, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { findArchitecture } from '../../models/families/registry.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { defined } from '../../system/defined.js';
import { expectSame } from '../support/numbers.js';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { emulateModule } from './cuda/emulate.js';
import { RUNNABLE, runGenerated } from './harness.js';
import { madeUpTrees, type ScanCase, scanInputs, scanModule, STATES } from './recurrentCases.js';

const DELTA: ScanCase = {
  ...{ rule: 'delta', mask: 'path', keyHeads: 1, heads: 2, keyDim: 20, valueDim: 20 },
  ...{ epsilon: 1e-6, scale: 0.25 },
};
const ADD: ScanCase = { rule: 'add', mask: 'column', keyHeads: 2, heads: 2, keyDim: 16, valueDim: 12, hasSkip: true };
/** Heads 0 and 2 have one head of keys, 1 and 3 the other. */
const TURNS: ScanCase = { ...DELTA, keyHeads: 2, heads: 4, keyDim: 8, valueDim: 8, takesTurns: true };
const CASES = [DELTA, ADD, TURNS];

const tensors = (own: ScanCase) =>
  new Map([['d', { rows: own.heads, columns: 1, data: Float64Array.from({ length: own.heads }, (_, i) => i - 0.5) }]]);

const sizesOf = (inputs: ReadonlyMap<string, Float64Array>, rows: number) => ({
  T: rows,
  R: 1,
  ...(inputs.has('key') ? { C: inputs.get('key')!.length } : {}),
});

/**
 * The values of every buffer after both kernels. `kept`: the states, and the rows that are read and written. `share`:
 * what a GPU's schedule of a scan says beside its threads.
 */
type Run = (
  own: ScanCase,
  parents: readonly number[],
  names?: readonly number[],
  kept?: ReadonlyMap<string, Float64Array>,
  share?: Pick<CudaLoopSchedule, 'lanes'>,
) => ReadonlyMap<string, Float64Array>;

const host: Run = (own, parents, names, kept = new Map()) => {
  const module = scanModule(own);
  const inputs = new Map([...scanInputs(module, parents, names), ...kept]);
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

const fibres: Run = (own, parents, names, kept = new Map(), share = {}) => {
  const module = scanModule(own);
  const inputs = new Map([...scanInputs(module, parents, names), ...kept]);
  return emulateModule(module, {
    sizes: sizesOf(inputs, parents.length),
    inputs,
    tensors: tensors(own),
    schedules: module.kernels.map(({ anchor }) => ({
      ...{ kind: 'loop', threads: 128 },
      ...(anchor === 'scan' ? share : {}),
    })),
    tokensCapacity: 1024,
  }).values;
};

const expected: Run = (own, parents, names, kept = new Map()) => {
  const module = scanModule(own);
  verifyKernels(module);
  verifyIndices(module);
  const inputs = new Map([...scanInputs(module, parents, names), ...kept]);
  return interpretModule(module, { sizes: sizesOf(inputs, parents.length), buffers: inputs, tensors: tensors(own) });
};

it('gives blocks several rows of a convolution, where there are many tokens', () => {
  const json = RECURRENT_FILES['qwen3.5'];
  const model = findArchitecture(json, 'config.json').family.describe(json, 'config.json', 'f32');
  const numerics = cudaNumerics('bf16');
  const graph = model.graph({ mask: 'tree', dtypeOf: () => 'bf16' });
  const module = lower(optimize(graph, numerics), numerics);
  const rowsOf = (tokens: number) =>
    module.kernels
      .filter(({ anchor }) => anchor === 'loop')
      .flatMap((kernel) => {
        const bucket = { extents: { T: tokens, R: tokens }, longest: 64 };
        const schedule = cudaScheduling.default(kernel, module, TYPICAL_FACTS.sm_90a, bucket);
        return schedule.kind === 'loop' && schedule.rows !== undefined ? [`${kernel.path}: ${schedule.rows}`] : [];
      });
  expect(rowsOf(8192)).toEqual(['layers.0.attention.qv: 8']);
  expect(rowsOf(64)).toEqual([]);
});

it('shares scans out among four lanes where each text of a step has a row, and only there', () => {
  const own: ScanCase = { ...DELTA, mask: 'column', isKept: true };
  const module = scanModule(own);
  const scan = module.kernels[1]!;
  const facts = TYPICAL_FACTS.sm_90a;
  const lanesOf = (each: ScanCase, tokens: number, run?: number) => {
    const other = scanModule(each);
    const bucket = { extents: { T: tokens, R: tokens, C: tokens }, longest: 64, ...defined({ run }) };
    const schedule = cudaScheduling.default(other.kernels[1]!, other, facts, bucket);
    expect(cudaScheduling.legality(other.kernels[1]!, other, schedule, facts)).toBe(true);
    return schedule.kind === 'loop' ? schedule.lanes : 'another kind';
  };
  expect([lanesOf(own, 256, 1), lanesOf(own, 1)]).toEqual([4, 4]);
  expect([lanesOf(own, 256, 16), lanesOf(own, 64), lanesOf({ ...own, keyDim: 256 }, 64, 1)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  expect(lanesOf({ ...own, isKept: false }, 64, 1)).toBeUndefined();
  expect(lanesOf({ ...own, rule: 'add' }, 64, 1)).toBeUndefined();
  const few = { kind: 'loop', threads: 128, lanes: 4 } as const;
  expect(cudaScheduling.schema.safeParse(few).success).toBe(true);
  for (const lanes of [1, 3, 8, 16, 64, '4'])
    expect(cudaScheduling.schema.safeParse({ ...few, lanes }).success, `${lanes}`).toBe(false);
  expect(cudaScheduling.legality(module.kernels[0]!, module, few, facts)).toBe('lanes are for scans');
  expect(cudaScheduling.legality(scan, module, few, { ...facts, sharedBytesPerBlock: 6000 })).toMatch(
    /^a block needs \d+ bytes of shared memory, 4976 are there$/,
  );
});

describe.each([
  ['host', host],
  ['fibres', fibres],
] as const)('scans on %s', (_, run) => {
  it.each(run === host ? casesHere(CASES, 1) : casesHere(CASES, 0))(
    'compute what $rule says over $mask for $heads heads',
    (own) => {
      const parents = madeUpTrees(45, 7);
      const [got, wanted] = [run(own, parents), expected(own, parents)];
      for (const name of ['before_1', 'before_3']) expect(got.get(name), name).toEqual(wanted.get(name));
      wanted.get('out')!.forEach((x, i) => expect(Math.abs(got.get('out')![i]! - x), `${i}`).toBeLessThan(2e-5));
    },
  );

  // In CI, paths go on over fibres, which have more schedules.
  it.runIf(isThorough || run === fibres)('give a path the same bits alone, and behind more forks than are kept', () => {
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

  it.runIf(isThorough)('go on from rows of states, with the same bits', () => {
    const own: ScanCase = { ...DELTA, mask: 'column', isKept: true };
    // A chain with branches behind its third row, the deepest first, and a tree beside it.
    const [chain, cut] = [22, 2];
    const parents = [...Array.from({ length: chain }, (_, row) => row - 1)];
    for (let row = chain - 2; row >= cut; row -= 3) parents.push(row, parents.length);
    const beside = parents.length;
    parents.push(-1, beside, beside);
    const none = (rows: number): Float64Array => new Float64Array(rows).fill(-1);
    const size = own.heads * own.keyDim * own.valueDim;
    const keptOf = (rows: number, from: number, to: Record<number, number>, also = -1, state?: Float64Array) => {
      const slots = none(rows);
      for (const [row, slot] of Object.entries(to)) slots[Number(row)] = slot;
      return new Map([
        ['from', none(rows).fill(from, 0, 1)],
        ['to', slots],
        ['also', none(rows).fill(also, rows - 1)],
        ['state', state ?? new Float64Array(STATES * size)],
      ]);
    };
    const leaf = beside - 1;
    const whole = run(own, parents, undefined, keptOf(parents.length, -1, { [leaf]: 4, [cut - 1]: 1 }));
    const first = run(own, [-1, 0], [0, 1], keptOf(cut, -1, { [cut - 1]: 2 }, 1));
    const rest = parents.slice(cut).map((parent) => (parent < 0 ? -1 : parent - cut));
    // In place: the last branch's leaf is written where the tree goes on from.
    const names = rest.map((_, i) => i + cut);
    const kept = keptOf(rest.length, 2, { [leaf - cut]: 2, [chain - 1 - cut]: 0 }, -1, first.get('state'));
    const second = run(own, rest, names, kept, { lanes: 4 });
    const width = own.heads * own.valueDim;
    expectSame(first.get('out'), whole.get('out')!.subarray(0, cut * width), 'the first rows');
    expectSame(second.get('out'), whole.get('out')!.subarray(cut * width), 'the rows behind them');
    const rowOf = (from: ReadonlyMap<string, Float64Array>, row: number) =>
      from.get('state')!.subarray(row * size, (row + 1) * size);
    expectSame(rowOf(first, 1), rowOf(whole, 1), 'a state');
    expectSame(rowOf(first, 2), rowOf(whole, 1), 'the same in another row');
    expectSame(rowOf(second, 2), rowOf(whole, 4), 'the state of a leaf');
    expectSame(rowOf(second, 1), rowOf(first, 1), 'a row that nobody writes');
    const wanted = expected(own, rest, names, kept);
    for (const name of ['out', 'state'])
      wanted.get(name)!.forEach((x, i) => expect(Math.abs(second.get(name)![i]! - x), `${i}`).toBeLessThan(2e-5));
  });
});
