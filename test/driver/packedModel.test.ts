/** Compiled models as bytes: what is read is what was written, to the bit. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packModel, type PlanOptions, unpackModel } from '../../driver/artifact/planCache.js';
import { type CompiledModel, compileModel } from '../../driver/compile/compile.js';
import { openModel, storedFormats } from '../../driver/functions.js';
import type { Precision } from '../../driver/precision.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { FAMILY_CHECKPOINTS, TYPICAL_PLACES } from '../support/familyCheckpoints.js';
import { casesHere } from '../support/thorough.js';

const ROOT = join(import.meta.dirname, '..', '..');
const FAMILIES = join(ROOT, '..', 'shared', 'checkpoints', 'families');
const DEMO = join(ROOT, 'models', 'demo');

const OPTIONS: PlanOptions = { batchTokens: 64, cacheTokens: 128, logits: true };

const onCpu = (checkpoint: Checkpoint, precision: Precision, options = OPTIONS): CompiledModel => {
  const device = cpuDevice(detectMachine(), precision, undefined, storedFormats(checkpoint, precision));
  return compileModel(checkpoint, cpu, device, options) as CompiledModel;
};

const onCuda = (checkpoint: Checkpoint, precision: Precision, options = OPTIONS): CompiledModel => {
  const stored = storedFormats(checkpoint, precision);
  const device = cudaDevice(TYPICAL_FACTS.sm_90a, precision, checkpoint.config.dtype, stored);
  return compileModel(checkpoint, cuda, device, options) as CompiledModel;
};

function expectSame(model: CompiledModel): void {
  const { known, ...read } = unpackModel(packModel(model));
  // Bits of numbers too: toStrictEqual tells −0 from 0, and absent fields from undefined ones.
  expect(read).toStrictEqual(model);
  expect(known?.plan).toBe(read.plan);
}

describe('a packed model', () => {
  const demo = openModel(DEMO, { kind: 'checkpoint' });

  it.each(['f32', 'int8'] as const)('is read as it was written: a CPU, %s', (precision) => {
    expectSame(onCpu(demo, precision));
  });

  it.each(['bf16', 'fp8'] as const)('is read as it was written: a GPU, %s', (precision) => {
    expectSame(onCuda(demo, precision, { ...OPTIONS, kvCache: 'fp8', feeds: true }));
  });

  it('keeps maps, infinities and the sign of zero', () => {
    const model = onCpu(demo, 'f32');
    const values = [0, -0, Infinity, -Infinity, 0.1, 5e-324, 1.7976931348623157e308];
    const plan = { ...model.plan, constants: [{ name: 'inf', values }] };
    const stored = new Map([['layers.0.a', 'q4_0' as const]]);
    const device = { ...cpuDevice(detectMachine(), 'f32'), contractions: { stored, rounds: false } };
    expectSame({ ...model, device, plan });
  });

  it('finds its target among those that it is given', () => {
    const bytes = packModel(onCpu(demo, 'f32'));
    expect(() => unpackModel(bytes, [])).toThrow('for cpu, which is no target');
  });

  it('may lie anywhere in memory', () => {
    const model = onCpu(demo, 'f32');
    const bytes = packModel(model);
    const larger = new Uint8Array(bytes.length + 3);
    larger.set(bytes, 3);
    expect(unpackModel(larger.subarray(3)).plan).toStrictEqual(model.plan);
  });
});

describe.skipIf(!existsSync(FAMILIES))('packed models of families', () => {
  it.each(casesHere(FAMILY_CHECKPOINTS, ...TYPICAL_PLACES.filter((_, i) => i % 3 === 0)))(
    'are read as they were written: %s',
    (family) => {
      const checkpoint = openModel(join(FAMILIES, family), { kind: 'checkpoint' });
      expectSame(onCpu(checkpoint, 'auto', { batchTokens: 64 }));
      expectSame(onCuda(checkpoint, 'auto', { batchTokens: 64 }));
    },
  );
});
