/** Heads of classes as GPUs run them, over fibres: score and step give what kernel IR means, and the same bits. */
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { fitsIn } from '../../ir/extents.js';
import { SCORE, STEP } from '../../ir/function.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { linkFunction } from '../../ir/plan.js';
import { listPaths } from '../../ir/scoring.js';
import { type CallArrays, extentsOf } from '../../runtime/call.js';
import { distance } from '../passes/modelEnvironment.js';
import { runFolder } from '../support/runFolder.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { below, randomModel, type RandomModel } from '../codegen/cuda/randomModel.js';
import { randomSource } from '../codegen/harness.js';

const CACHE_TOKENS = 128;

function call({ plan, tensors }: RandomModel, name: string, inputs: CallArrays, isExact = false): Float64Array {
  const fn = linkFunction(plan, name);
  const sizes = extentsOf(fn.interface, inputs);
  const bucket = fn.buckets.findIndex(({ extents }) => fitsIn(sizes, extents));
  const states = fn.buffers
    .filter(({ space }) => space === 'state')
    .map((state) => [state.name, new Float64Array(Number(state.rows) * Number(state.columns))] as const);
  const given = fn.interface.inputs.map((input) => [input.buffer, Float64Array.from(inputs[input.name]!)] as const);
  const buffers = new Map([...given, ...states]);
  const values = isExact
    ? interpretModule(fn, { sizes, buffers, tensors })
    : emulateModule(fn, {
        sizes,
        inputs: buffers,
        tensors,
        schedules: fn.launches.map(({ signature }) => fn.schedules[bucket]![signature]!),
        tokensCapacity: 512,
      }).values;
  const [output, ...others] = fn.interface.outputs;
  expect(others).toEqual([]);
  return values.get(output!.buffer)!;
}

describe.each([
  ['sm_80', 1],
  ['sm_80', 19],
  ['sm_90a', 2],
  ['sm_90a', 3],
] as const)('on %s, %i classes', (arch, labels) => {
  const folder = mkdtempSync(join(runFolder(), 'classes-'));
  const model = randomModel(folder, 3 + labels, 'bf16', TYPICAL_FACTS[arch], { cacheTokens: CACHE_TOKENS, labels });
  const random = randomSource(labels);
  const tokens = Int32Array.from({ length: 37 }, () => below(random, model.vocab));
  const position = Int32Array.from(tokens.keys());
  const row = Int32Array.of(0, 5, 35, 36);

  it('gives what kernel IR means, and the same bits in a step', () => {
    const { begin, key } = listPaths(position);
    const scores = { tokens, position, begin, key, row };
    const found = call(model, SCORE, scores);
    expect(found).toHaveLength(row.length * labels);
    expect(distance(found, call(model, SCORE, scores, true))).toBeLessThan(0.1);
    const slot = position.map((i) => CACHE_TOKENS - 1 - i);
    const step = { tokens, position, slot, begin: position.map(() => 0), key: slot, row };
    expect([...call(model, STEP, step)]).toEqual([...found]);
  });
});
