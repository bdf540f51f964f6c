/** A third target, as small as possible: the interpreter of kernel IR, in this process, with a single schedule. */
import { z } from 'zod';
import { peaksOf } from '../../autotune/peaks.js';
import { defaultBuckets } from '../../autotune/buckets.js';
import { factsSchema, kernelSymbol } from '../../driver/targets/printedKernels.js';
import type { Target, TargetCompiler } from '../../driver/targets/target.js';
import { scoreOf } from '../../ir/plan.js';
import { interpretModule, logicalWeight, type RawTensor } from '../../ir/kernelInterpreter.js';
import { readTensors } from '../examples/float64.js';

interface Plain {
  readonly kind: 'plain';
}

interface Precise {
  /** Significant bits. Another machine might have more or fewer. */
  readonly bits: 53;
}

const manifestSchema = z.strictObject({
  kind: z.literal('interpreter'),
  arithmetic: z.literal('f32'),
  bits: z.literal(53),
});
const device: Precise = { bits: 53 };

const RATES = { flopsPerSecond: 1e8, bytesPerSecond: 1e9 };

const compiler: TargetCompiler<Plain, Precise> = {
  scheduling: {
    schema: z.strictObject({ kind: z.literal('plain') }),
    key: ({ kind }) => kind,
    describe: ({ kind }) => kind,
    default: () => ({ kind: 'plain' }),
    legality: (_kernel, _module, { kind }) => (kind === 'plain' ? true : 'there is one schedule'),
  },
  mask: 'tree',
  choose: () => device,
  label: ({ bits }) => `f${bits + 11}`,
  arithmetic: () => 'f32',
  numerics: () => ({ activations: 'f32', weights: { layout: 'panels', format: 'f32' } }),
  capacity: () => ({ min: 32, max: 64 }),
  buckets: defaultBuckets,
  decodeSizes: [],
  sources: (plan) =>
    scoreOf(plan).kernels.map((kernel) => ({ name: `${kernel.name}.json`, text: JSON.stringify(kernel) })),
  print: (kernel) => ({ symbol: kernel.name, source: JSON.stringify(kernel), headers: [], parameters: [] }),
  compile: ({ plan }) => Promise.resolve({ sources: compiler.sources(plan), isCached: true }),
};

export const interpreter: Target<Plain, Precise> = {
  name: 'interpreter',
  names: ['interpreter'],
  compiler,
  devices: {
    isHost: true,
    timeoutSeconds: 60,
    compilesInProcess: false,
    sharesWeights: false,
    visible: () => 1,
    require: () => undefined,
    memoryBytes: () => Infinity,
    peaks: () => Promise.resolve(peaksOf(RATES, 'nominal')),
    open: (checkpoint, model) => {
      const plan = scoreOf(model.plan);
      const constants = plan.constants.map(({ name, values }): [string, RawTensor] => [
        name,
        { rows: values.length, columns: 1, data: Float64Array.from(values) },
      ]);
      const tensors = new Map([...readTensors(checkpoint), ...constants]);
      const weights = new Map(plan.weights.map((weight) => [weight.name, logicalWeight(weight, tensors, false)]));
      const { inputs: named, outputs, name } = plan.interface;
      return Promise.resolve({
        capacity: { [name]: plan.capacity.extents },
        call: (_name, given) => {
          const values = interpretModule(plan, {
            sizes: { T: given['tokens']!.length, R: given['row']!.length },
            weights,
            buffers: new Map(named.map((input) => [input.buffer, Float64Array.from(given[input.name]!)])),
          });
          const results = outputs.map(({ name: output, buffer, dtype }) => {
            const data = values.get(buffer)!;
            return [output, dtype === 'f32' ? Float32Array.from(data) : Int32Array.from(data)] as const;
          });
          return Promise.resolve({ outputs: Object.fromEntries(results) });
        },
        profile: () => Promise.resolve({ launches: [] }),
        close: () => Promise.resolve(),
      });
    },
  },
  tuner: {
    rates: () => RATES,
    times: () => Promise.resolve({ peaks: peaksOf(RATES, 'nominal'), predict: () => 1, measured: () => undefined }),
    tune: () => Promise.reject(new Error('there is nothing to tune')),
  },
  manifest: {
    schema: manifestSchema,
    kernels: factsSchema(z.strictObject({ symbol: kernelSymbol })),
    describe: ({ bits }) => ({ kind: 'interpreter', arithmetic: 'f32', bits }),
    restore: (described) => ({ bits: manifestSchema.parse(described).bits }),
    option: () => 'interpreter',
  },
};
