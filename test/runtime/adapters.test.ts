/** Slots of adapters in an executor: written while it runs, on every stage, and left out of calls that need none. */
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { compileCpuKernels, emitCpuPlan } from '../../driver/targets/cpuKernels.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { type CpuExecutorOptions, openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import type { Executor } from '../../runtime/executor.js';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { extentsOf, hostLibrary } from '../codegen/cuda/emulate.js';
import { adaptedPlan, adaptedTensors, LAST, resultOf, SLOTS, WIDTH, writesOf } from '../support/adaptedPlan.js';
import { describeFake } from '../support/fakeCuda/fakeDriver.js';
import { buildPackShim, PACK_PTX } from './cuda/packShim.js';
import { entryText } from './cuda/ptxEntry.js';
import { temporaryFolder } from './kernels.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
const GPU: Numerics = { activations: 'bf16', weights: { layout: 'kmajor', format: 'bf16', pairingWidth: 8 } };

const rows = (count: number): Float32Array => new Float32Array(count * WIDTH).fill(1);

/** One number a row: its results are all the same. */
async function results(executor: Executor, count: number, adapter?: readonly number[]): Promise<number[]> {
  const given = adapter === undefined ? {} : { adapter: Int32Array.from(adapter) };
  const { y } = (await executor.call('mix', { x: rows(count), ...given })).outputs;
  return Array.from({ length: count }, (_, row) => {
    const own = [...y!.subarray(row * LAST, (row + 1) * LAST)];
    expect(new Set(own).size).toBe(1);
    return own[0]!;
  });
}

async function checkSlots(executor: Executor, weights: Parameters<typeof writesOf>[0]): Promise<void> {
  const base = resultOf(0);
  expect(await results(executor, 3)).toEqual([base, base, base]);
  // Empty slots change nothing.
  expect(await results(executor, 2, [0, 2])).toEqual([base, base]);
  await executor.writeSlots([...writesOf(weights, 0, 1), ...writesOf(weights, 2, 2)]);
  const [one, two] = [resultOf(1), resultOf(2)];
  expect(await results(executor, 6, [0, -1, 2, 2, 1, 0])).toEqual([one, base, two, two, base, one]);
  expect(await results(executor, 2)).toEqual([base, base]);
  await executor.writeSlots(writesOf(weights, 2, 4));
  expect(await results(executor, 2, [2, 0])).toEqual([resultOf(4), one]);
  await executor.writeSlots(writesOf(weights, 0, 0));
  expect(await results(executor, 2, [2, 0])).toEqual([resultOf(4), base]);
  // What is shrunk of rows without adapter is no value of theirs.
  expect(await executor.diagnose('mix', { x: rows(3), adapter: Int32Array.of(-1, 2, -1) })).toBeUndefined();
}

describe('slots of adapters on a CPU', () => {
  const facts = { isas: ['portable'], l1: 32 << 10, l2: 1 << 20 } as const;
  const plan = adaptedPlan(cpuScheduling, facts, F32);
  let symbols: CpuExecutorOptions['symbols'];
  beforeAll(async () => {
    ({ symbols } = await compileCpuKernels(emitCpuPlan(plan), 'portable'));
  });
  const open = (change: Partial<CpuExecutorOptions> = {}) =>
    openCpuExecutor({ plan, symbols, tensors: adaptedTensors(), threads: 2, ...change });

  it('are written while it runs', async () => {
    const executor = await open();
    await checkSlots(executor, plan.weights);
    await executor.close();
    await expect(executor.writeSlots([])).rejects.toThrow('This executor was closed.');
  });

  it('are those of every stage', async () => {
    const executor = await open({
      stages: {
        mix: [
          { first: 0, end: 2 },
          { first: 2, end: 4 },
        ],
      },
    });
    await checkSlots(executor, plan.weights);
    await executor.close();
  });

  it('count as memory', async () => {
    const bare = plan.weights.filter(({ slots }) => slots === undefined);
    const slotBytes = writesOf(plan.weights, 0, 0).reduce((sum, { data }) => sum + data.length * SLOTS, 0);
    const executor = await open();
    expect(executor.memory.packedBytes).toBeGreaterThan(slotBytes);
    expect(bare).toHaveLength(2);
    await executor.close();
  });

  it('cost a call without adapters no launch', async () => {
    const executor = await open();
    const times = async (adapter: readonly number[] | undefined): Promise<boolean[]> => {
      const given = adapter === undefined ? {} : { adapter: Int32Array.from(adapter) };
      const { launches } = await executor.profile('mix', { x: rows(2), ...given });
      return launches.map(({ nanoseconds }) => nanoseconds > 0);
    };
    expect(await times([-1, 1])).toEqual([true, true, true, true]);
    for (const none of [undefined, [-1, -1]]) expect(await times(none)).toEqual([false, true, false, true]);
    await executor.close();
  });

  it('are refused where there are none', async () => {
    const executor = await open();
    const [write] = writesOf(plan.weights, 0, 1);
    const { weight, data } = write!;
    const refused = (change: object): Promise<void> => executor.writeSlots([{ ...write!, ...change }]);
    await expect(refused({ weight: 'first_w0' })).rejects.toThrow('first_w0 is no weight with slots.');
    await expect(refused({ slot: SLOTS })).rejects.toThrow(`${weight} has slots 0 to 2, not 3.`);
    await expect(refused({ slot: -1 })).rejects.toThrow(`${weight} has slots 0 to 2, not -1.`);
    await expect(refused({ data: data.subarray(4) })).rejects.toThrow(
      `A slot of ${weight} has ${data.length} bytes, not ${data.length - 4}.`,
    );
    await expect(results(executor, 2, [0, SLOTS])).rejects.toThrow('adapter[1] = 3 lies outside -1 to 2.');
    await expect(results(executor, 2, [0])).rejects.toThrow('adapter has 1 entries, not 2, by x.');
    await executor.close();
  });
});

describeFake('slots of adapters on the fake GPU', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

  it('are written beside its calls', async () => {
    const plan = adaptedPlan(cudaScheduling, TYPICAL_FACTS.sm_80, GPU);
    const { kernels, distinct } = emitCudaPlan(plan);
    fake.host(hostLibrary(distinct.values(), mkdtempSync(join(folder, 'kernels-'))));
    const cubins = new Map(
      [...distinct].map(([symbol, text]) => [
        symbol,
        encode(entryText(symbol, text.parameters.length, 0, extentsOf(text))),
      ]),
    );
    for (const order of [0, 7]) {
      fake.set('order', order);
      const executor = await openCudaExecutor({
        plan,
        kernels,
        cubins,
        packCubin: encode(PACK_PTX),
        tensors: adaptedTensors(),
        ordinals: [0],
        addon: fake.addon,
      });
      await checkSlots(executor, plan.weights);
      await executor.close();
      expect(fake.live()).toBe(0);
    }
  });
});
