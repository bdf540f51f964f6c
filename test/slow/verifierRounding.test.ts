/** What bf16 costs the scores of reward models: kernel IR that rounds as GPUs do, beside goldens in float64. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { cudaNumerics } from '../../driver/targets/cudaDevice.js';
import { tensorValues } from '../../driver/tensorValues.js';
import { interpretModule, logicalWeight, type RawTensor } from '../../ir/kernelInterpreter.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { recordOf } from '../../models/heads/records.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { ROOT, temporaryFolder } from '../e2e/support.js';
import { asComputed, BF16_ERRORS, CLASS_VERIFIERS, errorsOf, type Golden, goldensOf } from '../support/verifiers.js';

const SHARED = join(ROOT, '..', 'shared');

/** Scores of solutions by kernel IR, with the roundings of a GPU in bf16. */
function scorer(folder: string): (golden: Golden) => readonly number[] {
  const { model, tensors, config } = openCheckpoint(folder);
  const dtypeOf = (name: string) => tensors.get(name)?.format ?? config.dtype;
  const numerics = cudaNumerics('bf16');
  const module = lower(optimize(model.graph({ mask: 'path', dtypeOf }), numerics), numerics);
  const raw = new Map<string, RawTensor>();
  const take = (name: string, k: number): void => {
    if (!raw.has(name) && tensors.has(name)) raw.set(name, tensorValues(tensors, name, k));
  };
  for (const { sources, k, columnScale } of module.weights) {
    for (const { tensor } of sources) take(tensor, k);
    if (columnScale !== undefined) take(columnScale, k);
  }
  for (const { name, values } of module.constants ?? [])
    raw.set(name, { rows: values.length, columns: 1, data: Float64Array.from(values) });
  const weights = new Map(module.weights.map((weight) => [weight.name, logicalWeight(weight, raw, true)]));
  const output = module.buffers.find(({ space }) => space === 'output')!.name;
  const { score } = recordOf(config.head!);
  return ({ tokens, rows }) => {
    const positions = Float64Array.from(tokens.keys());
    const buffers = new Map([
      ['tokens', Float64Array.from(tokens)],
      ['position', positions],
      ['key', positions],
      ['begin', new Float64Array(tokens.length)],
      ['row', Float64Array.from(rows)],
    ]);
    const sizes = { T: tokens.length, C: tokens.length, R: rows.length };
    const values = interpretModule(module, { sizes, buffers, tensors: raw, weights, round: true }).get(output)!;
    const classes = values.length / rows.length;
    return rows.map((_, row) => score.of([...values.subarray(row * classes, (row + 1) * classes)]) as number);
  };
}

describe.skipIf(!existsSync(join(SHARED, 'golden', 'verifiers')))('bf16', () => {
  it.each(CLASS_VERIFIERS)('moves scores as far as is written down: %s', (name) => {
    const goldens = goldensOf(SHARED, name);
    const score = scorer(asComputed(SHARED, name, temporaryFolder()));
    const [mean, most] = errorsOf(goldens.map(score), goldens);
    const [wantedMean, wantedMost] = BF16_ERRORS[name];
    expect(mean).toBeCloseTo(wantedMean, 3);
    expect(most).toBeCloseTo(wantedMost, 2);
  });
});
