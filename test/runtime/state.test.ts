/** Two functions of one plan, on a CPU and on the fake GPU: they share weights and a state that outlives calls. */
import { beforeAll, describe, expect, it } from 'vitest';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { openCpuExecutor, type CpuExecutorOptions } from '../../runtime/cpu/openExecutor.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { compileLibrary, describeFake } from '../support/fakeCuda/fakeDriver.js';
import { scaleTensor, STATE_HOST, STATE_ROWS, stateC, stateKernels, statePlan } from '../support/statePlan.js';
import { checkStateCalls } from '../support/stateCalls.js';
import { buildPackShim, PACK_PTX } from './cuda/packShim.js';
import { entryText } from './cuda/ptxEntry.js';
import { ABI_TEXT, settingsIn, temporaryFolder } from './kernels.js';

const folder = temporaryFolder();
const plan = statePlan();
/** 32 rows of 32 columns: how the state is allocated. */
const STATE_BYTES = 32 * 32 * 4;

describe('functions with state on a CPU', () => {
  let symbols: CpuExecutorOptions['symbols'];
  beforeAll(async () => {
    const { path: library } = await compileShared([{ name: 'state.c', text: stateC(ABI_TEXT) }], {
      isa: 'portable',
      settings: settingsIn(folder),
    });
    const of = (symbol: string) => [{ library, symbol, scratchBytes: 0 }];
    symbols = { append: [of('k_append'), of('k_append')], recall: [of('k_recall')] };
  });
  const open = (change: Partial<CpuExecutorOptions> = {}) =>
    openCpuExecutor({ plan, symbols, tensors: scaleTensor(4), threads: 2, ...change });

  it('see what earlier calls of either wrote', async () => {
    const executor = await open();
    expect(executor.capacity).toEqual({ append: { Runs: 40 }, recall: { Entries: 16 } });
    await checkStateCalls(executor);
    await executor.close();
  });

  it('count their state as memory, and begin with zeroes in every executor', async () => {
    for (let i = 0; i < 2; i++) {
      const executor = await open();
      expect(executor.memory).toMatchObject({ stateBytes: STATE_BYTES });
      const { found } = (await executor.call('recall', { entry: Int32Array.of(0) })).outputs;
      expect([...found!]).toEqual([0, 0, 0, 0, 0]);
      await executor.call('append', { rows: new Float32Array(5).fill(1), slot: Int32Array.of(0) });
      await executor.close();
    }
  });

  it('are refused where a function has no kernels', async () => {
    await expect(open({ symbols: { append: symbols.append! } })).rejects.toThrow(
      '0 sets of symbols for 1 buckets of recall',
    );
  });
});

describeFake('functions with state on the fake GPU', (fake) => {
  fake.host(buildPackShim(folder).library);
  fake.host(compileLibrary(folder, 'state', { text: STATE_HOST }));
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
  const cubins = new Map(
    ['k_append', 'k_recall'].map((symbol) => [symbol, encode(entryText(symbol, 4, 0, ['count']))]),
  );

  it('see what earlier calls of either wrote, and give everything back', async () => {
    const executor = await openCudaExecutor({
      plan,
      kernels: stateKernels(plan),
      cubins,
      packCubin: encode(PACK_PTX),
      tensors: scaleTensor(4),
      ordinals: [0],
      addon: fake.addon,
    });
    expect(executor.memory[0]).toMatchObject({ stateBytes: STATE_BYTES });
    await checkStateCalls(executor);
    await executor.close();
    expect(fake.live()).toBe(0);
    expect(STATE_ROWS).toBeLessThan(32);
  });
});
