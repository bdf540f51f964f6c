/** A compiled model on its device: kernels compiled (or found in the cache), weights loaded. */
import { DRAFT_LAST_TOKENS, LAST_TOKENS } from '../../ir/stepping.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { memoryLine, printMemoryUse } from '../../runtime/cpu/memoryUse.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { bucketSymbols, firstBuckets, kernelRanks } from '../../runtime/cuda/bucketLoader.js';
import type { CubinSession } from '../../runtime/cuda/compiler.js';
import { cudaMemoryLine, printCudaMemoryUse } from '../../runtime/cuda/memoryUse.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import { type LoadTimes, printLoadTimes } from '../../runtime/cuda/weights.js';
import type { StateTokens } from '../../runtime/reservedStates.js';
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { counted, duration } from '../../system/text.js';
import type { DeviceExecutor } from '../executor.js';
import { clock, type Phases } from '../phases.js';
import { stepTo, type Ui } from '../requests.js';
import { CPU_PRINTING, type CpuModel, kernelsAtNeed } from './cpuKernels.js';
import { devicesFor } from './cudaDevice.js';
import { CUDA_PRINTING, type CudaModel, openCudaKernels } from './cudaKernels.js';
import { ownCodeNote } from './machineCode.js';
import { modelKernels } from './printedKernels.js';
import type { CompiledModel, OpenOptions } from './target.js';

/** A pipeline feeds no drawn tokens: its last stage draws what the first one would need. */
const forStages = <P extends CompiledModel['plan']>(plan: P) => ({
  ...plan,
  perStage: [LAST_TOKENS, DRAFT_LAST_TOKENS],
});

/** How many kernels are to be compiled, as readable text. */
export function distinct({ plan }: CompiledModel): string {
  const launches = plan.functions.flatMap((fn) => fn.launches);
  return `${new Set(launches.map((l) => l.signature)).size} different of ${launches.length}`;
}

/** Memory in a line, and a table with --verbose. */
function tellMemory(ui: Ui, line: string, table: string): void {
  ui.note(line);
  ui.detail(table);
}

/** As many tokens as there may be at most. */
const tokensOf = ({ cacheTokens = 0 }: Pick<CompiledModel, 'cacheTokens'>): StateTokens => ({
  first: cacheTokens,
  most: cacheTokens,
});

export async function loadCpuExecutor(
  checkpoint: Checkpoint,
  model: CpuModel,
  {
    phases,
    threads,
    stages,
    packed,
    first,
    besideBytes,
    tokens = tokensOf(model),
  }: Pick<OpenOptions, 'threads' | 'stages' | 'phases' | 'packed' | 'first' | 'besideBytes' | 'tokens'>,
  ui: Ui,
): Promise<DeviceExecutor> {
  let isLoaded = false;
  phases?.begin('kernels');
  const kernels = await kernelsAtNeed(modelKernels(model, CPU_PRINTING), model.device.isa, {
    packed,
    onProgress: ({ done, total }) => {
      if (isLoaded) stepTo(ui, { done, total, unit: 'kernels' });
    },
    onCompiled: ({ kernels: count, seconds }) => ui.detail(`${count} kernels compiled in ${duration(seconds)}`),
  });
  if (kernels.isUnpacked && packed !== undefined) ui.note(ownCodeNote(packed));
  phases?.begin('weights');
  ui.phase('load weights');
  return openCpuExecutor({
    plan: forStages(model.plan),
    symbols: kernels.symbols,
    compile: kernels.compile,
    tensors: checkpoint.tensors,
    threads,
    first,
    besideBytes,
    tokens,
    ...defined({ stages }),
    onMemory: (use) => tellMemory(ui, memoryLine(use), printMemoryUse(use)),
    onLoaded: () => {
      isLoaded = true;
      phases?.begin('programs');
      ui.phase('compile kernels', distinct(model));
    },
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

/** Says how long compiling took: for the first calls, and beside the work. */
function tellCompiling(session: CubinSession, first: Promise<unknown>, ui: Ui): void {
  const begin = performance.now();
  const seconds = (): string => duration((performance.now() - begin) / 1000);
  const told = first.then(() => {
    const { compiled } = session;
    if (compiled > 0) ui.detail(`${counted(compiled, 'kernel')} compiled in ${seconds()} by ${session.compilerName}`);
    return compiled;
  });
  // An error is that of the call that needs the kernel.
  Promise.all([told, session.done]).then(
    ([before]) => {
      const more = session.compiled - before;
      if (more > 0) ui.detail(`${counted(more, 'more kernel')} compiled beside the work, ${seconds()} in all`);
    },
    () => undefined,
  );
}

export async function loadCudaExecutor(
  checkpoint: Checkpoint,
  model: CudaModel,
  {
    devices: indices,
    stages,
    rebuild,
    siblings,
    phases,
    packed,
    first: calls = [],
    tokens = tokensOf(model),
  }: OpenOptions,
  ui: Ui,
): Promise<DeviceExecutor> {
  const plan = forStages(model.plan);
  const { arch } = model.device;
  const { devices, driverVersion } = devicesFor(arch, rebuild, Math.max(...indices) + 1);
  const own = indices.map((index) => at(devices, index));
  ui.phase('compile kernels', distinct(model));
  phases?.begin('kernels');
  const emitted = modelKernels(model, CUDA_PRINTING);
  const { kernels } = emitted;
  const first = firstBuckets(plan, calls, own.length);
  const ranks = kernelRanks(plan, kernels, first);
  const opened = await openCudaKernels(emitted, {
    arch,
    driverVersion,
    packed,
    // Weights wait for PACK_SYMBOL.
    rankOf: (symbol) => ranks.get(symbol) ?? -1,
  });
  const { cubins } = opened;
  if (opened.kind === 'unpacked' && packed !== undefined) ui.note(ownCodeNote(packed));
  const symbols = [...new Set(first.flatMap((of) => [...bucketSymbols(kernels, of)])), PACK_SYMBOL];
  const missing = symbols.filter((symbol) => cubins.known(symbol) === undefined);
  let isCompiling = missing.length > 0;
  let isLoaded = false;
  const tellKernels = (): void =>
    stepTo(ui, {
      done: symbols.filter((symbol) => cubins.known(symbol) !== undefined).length,
      total: symbols.length,
      unit: 'kernels',
    });
  const firstCode = Promise.all(
    missing.map(async (symbol) => {
      await cubins.get(symbol);
      if (isLoaded) tellKernels();
    }),
  ).then(() => {
    isCompiling = false;
    if (isLoaded) phases?.begin('programs');
  });
  // Opening the executor rejects with the same.
  firstCode.catch(() => undefined);
  if (opened.kind === 'session') tellCompiling(opened.cubins, firstCode, ui);
  if (isCompiling) phases?.during('kernels', () => firstCode).catch(() => undefined);
  phases?.begin('weights');
  ui.phase('load weights', own.map(({ name }) => name).join(', '));
  return openCudaExecutor({
    plan,
    kernels,
    cubins,
    packCubin: cubins.get(PACK_SYMBOL),
    first: calls,
    tokens,
    tensors: checkpoint.tensors,
    ordinals: own.map(({ ordinal }) => ordinal),
    onUnseen: ({ message }) => ui.warn(message),
    ...(siblings === undefined ? {} : { exchangeOf: (stage) => siblings.exchange(stage) }),
    ...(stages === undefined
      ? { onMemory: (use) => tellMemory(ui, cudaMemoryLine(use), printCudaMemoryUse(use)) }
      : // The placement report already covered each device.
        {
          stages,
          onRoutes: (routes) => {
            const line = `stages hand on ${[...new Set(routes)].map((route) => ROUTES[route]).join(', ')}`;
            // Users who chose a pipeline should know that its route is slow.
            if (routes.includes('host')) ui.note(line);
            else ui.detail(line);
          },
        }),
    onLoaded: (times) => {
      isLoaded = true;
      if (phases !== undefined) addParts(phases, times);
      phases?.begin(isCompiling ? 'kernels' : 'programs');
      ui.detail(printLoadTimes(times));
      if (!isCompiling) return;
      ui.phase('compile kernels', distinct(model));
      tellKernels();
    },
    onProgress: ({ doneBytes, totalBytes }) => stepTo(ui, { done: doneBytes, total: totalBytes, unit: 'bytes' }),
  });
}
