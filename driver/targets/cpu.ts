/** This host's processors: C, compiled by the system's compiler. */
import { availableParallelism } from 'node:os';
import { z } from 'zod';
import { defaultBuckets } from '../../autotune/buckets.js';
import type { Rates } from '../../autotune/peaks.js';
import { emitKernel } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { CPU_ISAS, type CpuSchedule } from '../../ir/plan.js';
import { BLOCK_NAMES } from '../../ir/storage.js';
import { machineBytes } from '../../runtime/cpu/memoryUse.js';
import { CPU_ARITHMETICS, isInteger } from '../precision.js';
import { arithmeticOf, cpuDevice, type CpuDevice, cpuDeviceFor, numericsOf } from './cpuDevice.js';
import { compileCpuKernels, CPU_PRINTING, emitCpuPlan } from './cpuKernels.js';
import { factsSchema, kernelSymbol, machineCodeOf } from './printedKernels.js';
import type { ManifestFormat, Target, TargetCompiler, TargetDevices, TargetTuner } from './target.js';

const manifestSchema = z.strictObject({
  kind: z.literal('cpu'),
  isa: z.enum(CPU_ISAS),
  arithmetic: z.enum(CPU_ARITHMETICS),
  /** Formats of matrices that are multiplied as they are stored, by tensor. */
  blocks: z
    .record(z.string().max(300), z.enum([...BLOCK_NAMES, 'i8']))
    .refine((blocks) => Object.keys(blocks).length <= 100_000)
    .optional(),
  cpu: z.string().max(200),
});

/** Of one processor, for each kernel of a plan. */
const COMPILE_SECONDS = 0.2;

const RATES: Rates = { flopsPerSecond: 4e11, bytesPerSecond: 2e10 };

const compiler: TargetCompiler<CpuSchedule, CpuDevice> = {
  scheduling: cpuScheduling,
  // A CPU adds one key after another, so that neighbours in a micro-batch do not matter.
  mask: 'tree',
  choose: ({ precision, isa }, machine, _stored, kept) => cpuDevice(machine, precision, isa, kept),
  label: ({ isa }) => isa,
  arithmetic: ({ isa, contractions }) => arithmeticOf(isa, contractions),
  numerics: ({ isa, contractions }) => numericsOf(isa, contractions),
  capacity: () => ({ min: 1024, max: 4096 }),
  buckets: defaultBuckets,
  // A query costs the same beside others of its path.
  decodeSizes: [],
  sources: (plan) => emitCpuPlan(plan).sources,
  print: (kernel, plan, schedule, markOf) => emitKernel(kernel, plan, schedule, plan.capacity.extents, markOf),
  compile: async ({ plan, device }, options) => {
    const emitted = emitCpuPlan(plan);
    return machineCodeOf(plan, emitted, await compileCpuKernels(emitted, device.isa, options), CPU_PRINTING);
  },
};

const devices: TargetDevices<CpuSchedule, CpuDevice> = {
  isHost: true,
  // A large model's micro-batch takes minutes on a few cores.
  timeoutSeconds: 1800,
  compilesInProcess: false,
  // Weights stay mapped, or are packed by the threads that will read them.
  sharesWeights: false,
  // A CPU is one device unless the user asks for several.
  visible: () => 1,
  require: () => undefined,
  memoryBytes: (_device, count) => machineBytes() / count,
  peaks: async ({ isa }, { threads }) => (await import('./kernelTimes.js')).cpuPeaks(isa, threads),
  open: async (checkpoint, model, options, ui) =>
    (await import('./executors.js')).loadCpuExecutor(checkpoint, model, options, ui),
};

const tuner: TargetTuner<CpuSchedule, CpuDevice> = {
  rates: () => RATES,
  times: async (model, machine, options) => (await import('./kernelTimes.js')).cpuTimes(model, machine, options, RATES),
  tune: async (model, machine, options) => (await import('./tuning.js')).tuneOnCpu(model, machine, options),
  compileSeconds: (plan) => (COMPILE_SECONDS * emitCpuPlan(plan).sources.length) / availableParallelism(),
};

const manifest: ManifestFormat<CpuDevice> = {
  schema: manifestSchema,
  kernels: factsSchema(
    z.strictObject({
      symbol: kernelSymbol,
      scratchBytes: z
        .int()
        .min(0)
        .max(2 ** 32),
    }),
  ),
  describe: ({ isa, cpu: model, contractions }) => ({
    kind: 'cpu',
    isa,
    arithmetic: arithmeticOf(isa, contractions),
    cpu: model,
    ...(contractions.stored.size === 0 ? {} : { blocks: Object.fromEntries(contractions.stored) }),
  }),
  restore: (described, machine) => {
    const { isa, arithmetic, cpu: model, blocks = {} } = manifestSchema.parse(described);
    const stored = new Map(Object.entries(blocks));
    const contractions = { stored, rounds: stored.size === 0 && isInteger(arithmetic) };
    if (!machine.isas.includes(isa))
      throw new Error(
        `compiled for ${isa} on ${model}; this CPU (${machine.cpu.model}) has ${machine.isas.join(', ')}`,
      );
    if (arithmeticOf(isa, contractions) !== arithmetic)
      throw new Error(`manifest.json: ${isa} does not compute in ${arithmetic}`);
    return cpuDeviceFor(machine, isa, contractions);
  },
  option: () => 'cpu',
};

export const cpu: Target<CpuSchedule, CpuDevice> = {
  name: 'cpu',
  names: ['cpu'],
  compiler,
  devices,
  tuner,
  manifest,
};
