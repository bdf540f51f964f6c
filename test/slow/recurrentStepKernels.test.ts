/**
 * Kernels of steps of recurrent families for a GPU: run over fibres, texts that go on from rows of states get the bits
 * of scoring, and so do questions whose beginnings are kept; and NVIDIA's compiler takes them.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { SequenceTable } from '../../driver/devices/sequenceTable.js';
import { cudaNumerics, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { stepExtents } from '../../ir/stepping.js';
import { findArchitecture } from '../../models/families/registry.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { environment } from '../passes/modelEnvironment.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';
import { pathsOfWalk, scoreInputs, walkStates } from '../support/stateWalk.js';
import { scoredTree, sharedQuestions, walkedCalls } from '../support/walkedQuestions.js';

const CACHE_ROWS = 16 * 64;
const CAPACITY = 512;
const NUMERICS = cudaNumerics('bf16');
const bucket = (extents: Bucket['extents']): Bucket => ({ extents, longest: 64 });
const STEPS = bucket(stepExtents({ tokens: CAPACITY, keys: CAPACITY, rows: CAPACITY, tails: CAPACITY }));

const modelOf = (json: Record<string, unknown>) =>
  findArchitecture(json, 'config.json').family.describe(json, 'config.json', 'f32');

function modulesOf(json: Record<string, unknown>) {
  const model = modelOf(json);
  const dtypeOf = () => 'bf16' as const;
  const cache = { rows: CACHE_ROWS, dtype: NUMERICS.attention! };
  const graph = model.graph({ mask: 'tree', dtypeOf });
  return {
    model,
    graph,
    score: lower(optimize(graph, NUMERICS), NUMERICS),
    step: lower(optimize(model.step({ cache, rounded: NUMERICS.activations, dtypeOf }), NUMERICS), NUMERICS),
  };
}
const schedulesOf = (module: KernelModule, size: Bucket, arch: keyof typeof TYPICAL_FACTS) =>
  module.kernels.map((kernel) => cudaScheduling.default(kernel, module, TYPICAL_FACTS[arch], size));

const asDoubles = (arrays: Readonly<Record<string, ArrayLike<number> | undefined>>): Map<string, Float64Array> =>
  new Map(Object.entries(arrays).map(([name, array]) => [name, Float64Array.from(array ?? [])]));

/** Runs the modules of a model over fibres. */
function emulated(json: Record<string, unknown>) {
  const { model, graph, score, step } = modulesOf(json);
  const { tensors: all } = environment(graph, {});
  const tensors = new Map(
    [...all].map(([name, { rows, columns, data }]) => [
      name,
      rows === 1 ? { rows: columns, columns: 1, data } : { rows, columns, data },
    ]),
  );
  const run = (module: KernelModule, sizes: Bucket['extents'], given: ReadonlyMap<string, Float64Array>) => {
    const named = module.interface.inputs.map(({ name, buffer }) => [buffer, given.get(name)!] as const);
    const states = (module.states ?? []).map(({ name }) => [name, given.get(name)!] as const);
    const { values } = emulateModule(module, {
      sizes,
      inputs: new Map([...named, ...states]),
      tensors,
      schedules: schedulesOf(module, module === score ? bucket({ T: CAPACITY, R: CAPACITY }) : STEPS, 'sm_80'),
      tokensCapacity: CAPACITY,
    });
    const { buffer } = module.interface.outputs.find(({ name }) => name === 'logProb')!;
    return { logProb: values.get(buffer)!, states: new Map(states.map(([name]) => [name, values.get(name)!])) };
  };
  const empty: ReadonlyMap<string, Float64Array> = new Map(
    (step.states ?? []).map(({ name, rows, columns }) => [name, new Float64Array(rows * columns)]),
  );
  return { model, score, step, run, empty };
}

describe.each(Object.entries(RECURRENT_FILES))('steps of %s on a GPU', (_, json) => {
  it('give the bits of scoring', () => {
    const { model, score, step, run, empty } = emulated(json);
    const walk = walkStates({ seed: 5, vocab: 40, texts: 2, length: 30 });
    const wanted = new Map<string, number>();
    const paths = pathsOfWalk(walk);
    for (let at = 0; at < paths.length; at += 12) {
      const { inputs, keys } = scoreInputs(paths.slice(at, at + 12));
      const sizes = { T: inputs.tokens.length, R: keys.length };
      expect(sizes.T).toBeLessThanOrEqual(CAPACITY);
      run(score, sizes, asDoubles(inputs)).logProb.forEach((x, i) => wanted.set(keys[i]!, x));
    }
    const table = new SequenceTable({ pages: CACHE_ROWS / 16, keys: 4096, states: model.states });
    let kept = empty;
    for (const [i, { message, asked }] of walk.entries()) {
      const given = asDoubles({ ...table.apply(message).inputs });
      const sizes = { T: asked.length, C: given.get('key')!.length, R: asked.length, S: given.get('tailSlot')!.length };
      const { logProb, states } = run(step, sizes, new Map([...given, ...kept]));
      expect([...logProb], `step ${i}`).toEqual(asked.map((path) => wanted.get(path.join())));
      kept = states;
    }
  });

  it.each([
    ['kept beginnings', 4, false],
    ['two phases', 256, true],
  ])('give the bits of trees: questions, %s', (_name, states, isTwoPhase) => {
    const { model, score, step, run, empty } = emulated(json);
    const paths = sharedQuestions(9, 40);
    const { inputs, rows } = scoredTree(paths);
    const sizes = { T: inputs['tokens']!.length, R: inputs['row']!.length };
    const wanted = run(score, sizes, asDoubles(inputs)).logProb;
    const limits = { tokens: 13, keys: 1000, rows: 24, cacheRows: 96, states };
    let kept = empty;
    for (const { inputs: given, scored } of walkedCalls(paths, limits, { states: model.states! }, isTwoPhase)) {
      const [T, C, R, S] = ['tokens', 'key', 'row', 'tailSlot'].map((name) => given[name]!.length);
      const own = run(step, { T: T!, C: C!, R: R!, S: S! }, new Map([...asDoubles(given), ...kept]));
      for (const [row, name] of scored) expect(own.logProb[row], name).toBe(wanted[rows.get(name)!]);
      kept = own.states;
    }
  });

  it.skipIf(!hasNvcc).each(['sm_80', 'sm_90a'] as const)('are taken by nvcc for %s', (arch) => {
    const { step } = modulesOf(json);
    const schedules = schedulesOf(step, STEPS, arch);
    const going = schedulesOf(step, { ...STEPS, run: 1 }, arch);
    const own = step.kernels.flatMap((kernel, i) =>
      /layers\.0\./.test(kernel.path) && kernel.anchor !== 'gemm'
        ? [schedules[i]!, ...(kernel.anchor === 'scan' ? [going[i]!] : [])].map((each) =>
            emitCudaKernel(kernel, step, each, STEPS.extents),
          )
        : [],
    );
    expect(compileByNvcc(own, arch).map(({ stackBytes }) => stackBytes)).toEqual(own.map(() => 0));
  });
});
