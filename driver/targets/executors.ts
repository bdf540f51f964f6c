/** A compiled model on its device: kernels compiled (or found in the cache), weights loaded. */
import { DRAWN } from '../../ir/stepping.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { memoryLine, printMemoryUse } from '../../runtime/cpu/memoryUse.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { cudaMemoryLine, printCudaMemoryUse } from '../../runtime/cuda/memoryUse.js';
import { PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import { printLoadTimes, type LoadTimes } from '../../runtime/cuda/weights.js';
import { duration } from '../../system/format.js';
import type { CpuModel } from './cpuModel.js';
import type { CudaModel } from './cudaModel.js';
import type { CompiledModel, OpenOptions } from './target.js';
import { compileCudaKernels, cudaKernelsOf } from './cudaKernels.js';
import { devicesFor } from './gpu.js';
import { compileKernels, cpuKernelsOf } from './cpuKernels.js';
import { stepTo, type Ui } from '../requests.js';
import { clock, type Phases } from '../phases.js';
import type { Executor } from '../executor.js';

/** Reported when --trust-code takes effect. */
const OWN_CODE = 'no compiler is here: the machine code of the artifact runs, because --trust-code was given';

/** A pipeline feeds no drawn tokens: its last stage draws what the first one would need. */
const forStages = <P extends CompiledModel['plan']>(plan: P) => ({ ...plan, perStage: [DRAWN] });

/** How many kernels are to be compiled, as readable text. */
export function distinct({ plan }: CompiledModel): string {
  const launches = plan.functions.flatMap((fn) => fn.launches);
  return `${new Set(launches.map((l) => l.signature)).size} different of ${launches.length}`;
}

/** Memory in a line; a table for whoever asks for details. */
function tellMemory(ui: Ui, line: string, table: string): void {
  ui.note(line);
  ui.detail(table);
}

export async function loadCpuExecutor(
  checkpoint: Checkpoint,
  model: CpuModel,
  { phases, threads, stages, packed }: Pick<OpenOptions, 'threads' | 'stages' | 'phases' | 'packed'>,
  ui: Ui,
): Promise<Executor> {
  ui.phase('compile kernels', distinct(model));
  phases?.begin('kernels');
  const compiled = await compileKernels(cpuKernelsOf(model), model.device.isa, {
    packed,
    onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
  });
  if (compiled.isUnpacked) ui.note(OWN_CODE);
  if (!compiled.isCached) ui.detail(`kernels compiled in ${duration(compiled.seconds)}`);
  phases?.begin('weights');
  ui.phase('load weights');
  return openCpuExecutor({
    plan: forStages(model.plan),
    symbols: compiled.symbols,
    tensors: checkpoint.tensors,
    threads,
    ...(stages === undefined ? {} : { stages }),
    onMemory: (use) => tellMemory(ui, memoryLine(use), printMemoryUse(use)),
    onProgress: ({ doneBytes, totalBytes, weight, took }) => {
      if (took !== undefined) phases?.part(`read and pack ${weight}`, took.seconds, took.bytes);
      stepTo(ui, { done: doneBytes, total: totalBytes, unit: 'bytes' });
    },
  });
}

/** The parts of a load that has just ended. */
function addParts(phases: Phases, { preparing, streaming, releasing, copiedBytes }: LoadTimes): void {
  const released = clock();
  const streamed = released - 1000 * releasing;
  phases.part('prepare to load', preparing, 0, streamed - 1000 * streaming.total);
  phases.part('read, copy and lay out weights', streaming.total, copiedBytes, streamed);
  phases.part('release what loading needed', releasing, 0, released);
}

/** How stages reach each other, in words. */
const ROUTES = {
  local: 'on one device',
  peer: 'device to device',
  host: 'through the host: these devices do not reach each other',
} as const;

export async function loadCudaExecutor(
  checkpoint: Checkpoint,
  model: CudaModel,
  { devices: indices, stages, rebuild, siblings, phases, packed }: OpenOptions,
  ui: Ui,
): Promise<Executor> {
  const { plan } = model;
  const { arch } = model.device;
  const { devices, driverVersion } = devicesFor(arch, rebuild, Math.max(...indices) + 1);
  const own = indices.map((index) => devices[index]!);
  ui.phase('compile kernels', distinct(model));
  phases?.begin('kernels');
  const emitted = cudaKernelsOf(model);
  const compiled = await compileCudaKernels(emitted, arch, {
    driverVersion,
    packed,
    onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
  });
  if (compiled.isUnpacked) ui.note(OWN_CODE);
  if (!compiled.isCached) ui.detail(`kernels compiled in ${duration(compiled.seconds)} by ${compiled.compiler}`);
  phases?.begin('weights');
  ui.phase('load weights', own.map(({ name }) => name).join(', '));
  return openCudaExecutor({
    plan: forStages(plan),
    kernels: emitted.kernels,
    cubins: compiled.cubins,
    packCubin: compiled.cubins.get(PACK_SYMBOL)!,
    tensors: checkpoint.tensors,
    ordinals: own.map(({ ordinal }) => ordinal),
    ...(siblings === undefined ? {} : { exchangeOf: (stage) => siblings.exchange(stage) }),
    ...(stages === undefined
      ? { onMemory: (use) => tellMemory(ui, cudaMemoryLine(use), printCudaMemoryUse(use)) }
      : // The placement report already covered each device.
        {
          stages,
          onRoutes: (routes) => {
            const line = `stages hand on ${[...new Set(routes)].map((route) => ROUTES[route]).join(', ')}`;
            // A way that is slow concerns whoever chose a pipeline.
            if (routes.includes('host')) ui.note(line);
            else ui.detail(line);
          },
        }),
    onLoaded: (times) => {
      if (phases !== undefined) addParts(phases, times);
      phases?.begin('programs');
      ui.detail(printLoadTimes(times));
    },
    onProgress: ({ doneBytes, totalBytes }) => stepTo(ui, { done: doneBytes, total: totalBytes, unit: 'bytes' }),
  });
}
