/** Functions with state, compiled from their graphs, on a CPU and on the fake GPU: they share weights and a state. */
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/schedules.js';
import { compileCpuKernels, emitCpuPlan } from '../../driver/targets/cpuKernels.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import type { CudaPlan } from '../../ir/plan.js';
import { type CpuExecutorOptions, openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { FACTS } from '../autotune/cuda/fixture.js';
import { extentsOf, hostLibrary } from '../codegen/cuda/emulate.js';
import { describeFake } from '../support/fakeCuda/fakeDriver.js';
import { checkMemoryCalls, memoryPlan } from '../support/memoryFunction.js';
import { checkStateCalls, scaleTensor, statePlan } from '../support/statePlan.js';
import { buildPackShim, PACK_PTX } from './cuda/packShim.js';
import { entryText } from './cuda/ptxEntry.js';
import { temporaryFolder } from './kernels.js';

/** 32 rows of 32 columns: how the state of statePlan.ts is allocated. */
const STATE_BYTES = 32 * 32 * 4;
/** That of memoryFunction.ts, 64 rows of 8 columns. */
const MEMORY_BYTES = 64 * 32 * 4;

describe('functions with state on a CPU', () => {
  const facts = { isas: ['portable'], l1: 32 << 10, l2: 1 << 20 } as const;
  const plan = statePlan(cpuScheduling, facts);
  let symbols: CpuExecutorOptions['symbols'];
  beforeAll(async () => {
    ({ symbols } = await compileCpuKernels(emitCpuPlan(plan), 'portable'));
  });
  const open = (change: Partial<CpuExecutorOptions> = {}) =>
    openCpuExecutor({ plan, symbols, tensors: scaleTensor(4), threads: 2, ...change });

  it('see what earlier calls of either wrote', async () => {
    const executor = await open();
    expect(executor.capacity).toEqual({ append: { Runs: 40 }, recall: { Entries: 16 } });
    await checkStateCalls(executor);
    await executor.close();
  });

  it('reach the rows that there is memory for, and no others', async () => {
    const executor = await open();
    const recall = (row: number) => executor.call('recall', { entry: Int32Array.of(row) });
    const last = recall(8);
    const shrunk = executor.resize(4);
    // Before it has happened, and whatever comes behind it.
    await expect(recall(4)).rejects.toThrow('entry[0] = 4 lies outside 0 to 3');
    const grown = executor.resize(6);
    await expect(recall(4)).rejects.toThrow('entry[0] = 4 lies outside 0 to 3');
    await last;
    expect(await shrunk).toBe(4);
    expect(await grown).toBe(6);
    await recall(5);
    await expect(recall(6)).rejects.toThrow('entry[0] = 6 lies outside 0 to 5');
    await expect(executor.resize(-1)).rejects.toThrow('-1 is no number of tokens');
    await executor.close();
    await expect(executor.resize(1)).rejects.toThrow('This executor was closed.');
  });

  it('read and write in one call', async () => {
    const memory = memoryPlan(cpuScheduling, facts);
    const compiled = await compileCpuKernels(emitCpuPlan(memory), 'portable');
    const executor = await open({ plan: memory, symbols: compiled.symbols, tensors: new Map() });
    expect(executor.capacity).toEqual({ remember: { N: 40, Q: 40 } });
    expect(executor.memory).toMatchObject({ stateBytes: MEMORY_BYTES });
    await checkMemoryCalls(executor);
    await executor.close();
  });

  it('count their state as memory, and begin with zeroes in every executor', async () => {
    for (let i = 0; i < 2; i++) {
      const executor = await open();
      expect(executor.memory).toMatchObject({ stateBytes: STATE_BYTES });
      const { found } = (await executor.call('recall', { entry: Int32Array.of(0) })).outputs;
      expect([...found!]).toEqual([0, 0, 0, 0, 0]);
      const first = Int32Array.of(0);
      await executor.call('append', { rows: new Float32Array(5).fill(1), slot: first, old: first });
      await executor.close();
    }
  });

  it('are refused if a function has no kernels', async () => {
    await expect(open({ symbols: { append: symbols.append! } })).rejects.toThrow(
      '0 sets of symbols for 1 buckets of recall',
    );
  });
});

describeFake('functions with state on the fake GPU', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

  /** The plan's kernels computed by the host, over fibres. */
  const open = (plan: CudaPlan) => {
    const { kernels, distinct } = emitCudaPlan(plan);
    fake.host(hostLibrary(distinct.values(), mkdtempSync(join(folder, 'kernels-'))));
    const cubins = new Map(
      [...distinct].map(([symbol, text]) => [
        symbol,
        encode(entryText(symbol, text.parameters.length, 0, extentsOf(text))),
      ]),
    );
    const tensors = scaleTensor(4);
    return openCudaExecutor({
      plan,
      kernels,
      cubins,
      packCubin: encode(PACK_PTX),
      tensors,
      ordinals: [0],
      addon: fake.addon,
    });
  };

  it.each([
    ['see what earlier calls of either wrote', statePlan, checkStateCalls, STATE_BYTES],
    ['read and write in one call', memoryPlan, checkMemoryCalls, MEMORY_BYTES],
  ] as const)('%s, and give everything back', async (_, planFor, check, stateBytes) => {
    const executor = await open(planFor(cudaScheduling, FACTS));
    expect(executor.memory[0]).toMatchObject({ stateBytes });
    await check(executor);
    await executor.close();
    expect(fake.live()).toBe(0);
  });
});
