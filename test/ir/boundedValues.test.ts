/** Indices that kernels compute: tokens that a call before has drawn choose rows of the embedding. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { modelFunctions, openModel } from '../../driver/functions.js';
import { numericsOf } from '../../driver/targets/cpuDevice.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Scalar } from '../../ir/scalar.js';
import { storedBounds, verifyIndices } from '../../ir/verifyIndices.js';
import { lowerModule } from '../../passes/runPasses.js';

const VOCAB = 4096;

function stepOf(): KernelModule {
  const checkpoint = openModel(join(import.meta.dirname, '..', '..', 'models', 'demo'), { kind: 'checkpoint' });
  const numerics = numericsOf('avx2');
  const lowered = lowerModule(modelFunctions(checkpoint, numerics, { cacheRows: 64, feeds: true }), numerics);
  const { weights, constants, states } = lowered;
  return { ...lowered.functions[1]!, weights, constants, states };
}

/** The module with another expression for the tokens. */
const withToken = (module: KernelModule, change: (value: Scalar) => Scalar): KernelModule => ({
  ...module,
  kernels: module.kernels.map((kernel): Kernel => {
    if (kernel.anchor !== 'loop' || kernel.path !== 'feed') return kernel;
    return { ...kernel, outputs: kernel.outputs.map((output) => ({ ...output, value: change(output.value) })) };
  }),
});

describe('tokens that are fed', () => {
  const module = stepOf();
  const roles = new Map(module.interface.inputs.map(({ buffer, role }) => [buffer, role]));

  it('are tokens of the vocabulary, whatever was drawn', () => {
    expect(storedBounds(module, 'token', roles)).toEqual({ low: 0, high: VOCAB - 1 });
    expect(() => verifyIndices(module)).not.toThrow();
  });

  it.each<[string, (value: Scalar) => Scalar, string]>([
    ['one more than the last', (a) => ({ op: 'max', a, b: { op: 'const', value: VOCAB } }), `${VOCAB} to ${VOCAB};`],
    ['less than the first', (a) => ({ op: 'min', a, b: { op: 'const', value: -1 } }), '-1 to -1;'],
    ['nothing that is known', (a) => ({ op: 'add', a, b: a }), '-Infinity to Infinity;'],
    [
      'the state itself',
      () => ({ op: 'load', buffer: 'last_tokens', access: { kind: 'row', via: 'feed' } }),
      '-Infinity',
    ],
  ])('may not be %s', (_title, change, message) => {
    expect(() => verifyIndices(withToken(module, change))).toThrow(message);
  });

  it('must be written by one kernel, in all rows', () => {
    const feed = module.kernels.find(({ path }) => path === 'feed')!;
    const twice = { ...module, kernels: [...module.kernels, feed] };
    expect(() => verifyIndices(twice)).toThrow('is no input: nothing bounds it');
    const fewer = { ...module, kernels: module.kernels.map((each) => (each === feed ? { ...each, rows: 'R' } : each)) };
    expect(() => verifyIndices(fewer as KernelModule)).toThrow('is no input: nothing bounds it');
  });
});
