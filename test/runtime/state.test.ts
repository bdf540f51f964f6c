/** Functions with state, compiled from their graphs, on a CPU and on the fake GPU: they share weights and a state. */
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { compileCpuKernels, emitCpuPlan } from '../../driver/targets/cpuKernels.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { RESERVED_ROWS } from '../../ir/function.js';
import type { CudaPlan } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { type CpuExecutorOptions, openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import type { StateTokens } from '../../runtime/reservedStates.js';
import { FACTS } from '../autotune/cuda/fixture.js';
import { extentsOf, hostLibrary } from '../codegen/cuda/emulate.js';
import { CODES, describeFake } from '../support/fakeCuda/fakeDriver.js';
import { checkMemoryCalls, memoryPlan } from '../support/memoryFunction.js';
import { checkResize, checkStateCalls, ROW_BYTES, scaleTensor, statePlan } from '../support/statePlan.js';
import { defined } from '../../system/defined.js';
import { buildPackShim, PACK_PTX } from './cuda/packShim.js';
import { entryText } from './cuda/ptxEntry.js';
import { temporaryFolder } from './kernels.js';
import { casesHere, thorough } from '../support/thorough.js';

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

  describe('that is reserved', () => {
    const large = statePlan(cpuScheduling, facts, RESERVED_ROWS);
    const openLarge = async (change: Partial<CpuExecutorOptions> = {}) => {
      const compiled = await compileCpuKernels(emitCpuPlan(large), 'portable');
      return open({ plan: large, symbols: compiled.symbols, tensors: scaleTensor(1), ...change });
    };

    it('have memory for as many rows as were asked for last', async () => {
      const executor = await openLarge();
      await checkResize(executor);
      await executor.close();
      await expect(executor.resize(1)).rejects.toThrow('This executor was closed.');
    });

    it('can have some from the beginning, which counts', async () => {
      const executor = await openLarge({ tokens: { first: 1000, most: 1000 } });
      expect(executor.memory).toMatchObject({ stateBytes: 1000 * ROW_BYTES });
      await executor.call('recall', { entry: Int32Array.of(999) });
      await executor.close();
    });

    it('take no more than the machine has', async () => {
      const executor = await openLarge();
      const tokens = await executor.resize(1000);
      const free = vi.spyOn(process, 'availableMemory').mockReturnValue(
        // Nine tenths of it, less what was promised to the rows before: two pieces and a half.
        (roundUp(1064 * ROW_BYTES, 4096) + executor.pieces.bytes * 2.5) / 0.9,
      );
      expect(await executor.resize(100_000)).toBe(tokens + 2 * executor.pieces.tokens);
      free.mockReturnValue(0);
      expect(await executor.resize(100_000)).toBe(tokens + 2 * executor.pieces.tokens);
      expect(await executor.resize(10)).toBe(10);
      free.mockRestore();
      await executor.close();
    });
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

  const known = new Map<CudaPlan, ReturnType<typeof emitCudaPlan>>();
  /** The plan's kernels, which the host computes, over fibres. */
  const emitted = (plan: CudaPlan): ReturnType<typeof emitCudaPlan> => {
    const before = known.get(plan);
    if (before !== undefined) return before;
    const made = emitCudaPlan(plan);
    known.set(plan, made);
    fake.host(hostLibrary(made.distinct.values(), mkdtempSync(join(folder, 'kernels-'))));
    return made;
  };

  const open = (plan: CudaPlan, { scale = 4, ...change }: { scale?: number; tokens?: StateTokens } = {}) => {
    const { kernels, distinct } = emitted(plan);
    const cubins = new Map(
      [...distinct].map(([symbol, text]) => [
        symbol,
        encode(entryText(symbol, text.parameters.length, 0, extentsOf(text))),
      ]),
    );
    const tensors = scaleTensor(scale);
    return openCudaExecutor({
      plan,
      kernels,
      cubins,
      packCubin: encode(PACK_PTX),
      tensors,
      ordinals: [0],
      addon: fake.addon,
      ...change,
    });
  };

  const CALLS = [
    ['see what earlier calls of either wrote', statePlan, checkStateCalls, STATE_BYTES],
    ['read and write in one call', memoryPlan, checkMemoryCalls, MEMORY_BYTES],
  ] as const;
  it.each(casesHere<(typeof CALLS)[number]>(CALLS, 0))(
    '%s, and give everything back',
    async (_, planFor, check, stateBytes) => {
      const executor = await open(planFor(cudaScheduling, FACTS));
      expect(executor.memory[0]).toMatchObject({ stateBytes });
      await check(executor);
      await executor.close();
      expect(fake.live()).toBe(0);
    },
  );

  describe('that is reserved', () => {
    beforeEach(() => fake.reset());
    const large = statePlan(cudaScheduling, FACTS, RESERVED_ROWS);
    const openLarge = (tokens?: StateTokens) => open(large, { scale: 1, ...defined({ tokens }) });
    const pieceBytes = 2 << 20;

    it('have memory for as many rows as were asked for last', async () => {
      // In streams that run as late as possible, and in an order that nobody would choose.
      for (const order of casesHere([0, 7], 1)) {
        fake.set('order', order);
        const executor = await openLarge();
        await checkResize(executor);
        await executor.close();
        expect(fake.live()).toBe(0);
      }
    });

    it('take pieces of the driver, and no more than the device has', async () => {
      const executor = await openLarge({ first: 10, most: 10 });
      const { tokens, bytes } = executor.pieces;
      expect([tokens, bytes]).toEqual([pieceBytes / ROW_BYTES, pieceBytes]);
      // The rows that kernels may read behind the last one lie in a piece as well.
      expect(await executor.resize(tokens - 64)).toBe(tokens - 64);
      expect(fake.log('map')).toHaveLength(1);
      expect(await executor.resize(tokens)).toBe(tokens);
      expect(fake.log('map')).toHaveLength(2);
      const before = fake.log('map').length - fake.log('unmap').length;
      // What another process takes meanwhile, the driver says itself.
      fake.fail('cuMemCreate', CODES.outOfMemory, 3);
      expect(await executor.resize(10 * tokens)).toBe((before + 2) * tokens - 64);
      await executor.call('recall', { entry: Int32Array.of((before + 2) * tokens - 65) });
      fake.reset();
      fake.set('totalBytes', 256 << 20);
      const most = await executor.resize(1000 * tokens);
      expect(most).toBeLessThan(64 * tokens);
      expect(most).toBeGreaterThan(50 * tokens);
      expect(await executor.resize(0)).toBe(0);
      expect(fake.log('map').length).toBeGreaterThan(50);
      await executor.close();
      expect(fake.live()).toBe(0);
    });

    it('keep their size where a piece cannot be mapped, and what they have where one cannot be given up', async () => {
      const executor = await openLarge({ first: 10, most: 10 });
      const { tokens } = executor.pieces;
      for (const call of ['cuMemMap', 'cuMemSetAccess', 'cuMemsetD8Async']) {
        fake.fail(call, CODES.invalidValue);
        await expect(executor.resize(4 * tokens), call).rejects.toThrow(call);
        fake.reset();
        await executor.call('recall', { entry: Int32Array.of(9) });
      }
      expect(await executor.resize(4 * tokens)).toBe(4 * tokens);
      fake.fail('cuMemUnmap', CODES.invalidValue, 2);
      await expect(executor.resize(10)).rejects.toThrow('cuMemUnmap');
      await expect(executor.call('recall', { entry: Int32Array.of(10) })).rejects.toThrow('outside 0 to 9');
      fake.reset();
      await executor.close();
      expect(fake.live()).toBe(0);
    });

    it('have all memory at once where the driver maps none', async () => {
      fake.set('mapsMemory', 0);
      const executor = await openLarge({ first: 10, most: 100 });
      expect(await executor.resize(100)).toBe(100);
      expect(await executor.resize(1000)).toBe(100);
      await executor.call('recall', { entry: Int32Array.of(99) });
      expect(fake.log('reserve')).toEqual([]);
      expect(await executor.resize(10)).toBe(10);
      await executor.close();
      expect(fake.live()).toBe(0);
    });

    thorough('leave nothing behind, however often their size changes', async () => {
      const executor = await openLarge();
      const { tokens } = executor.pieces;
      await executor.prepare();
      await executor.resize(0);
      const live = fake.live();
      expect(await executor.resize(8 * tokens)).toBe(8 * tokens);
      for (let i = 0; i < 200; i++) await executor.resize(((i * 7) % 9) * tokens);
      await executor.resize(0);
      expect(fake.live()).toBe(live);
      await executor.close();
      expect(fake.live()).toBe(0);
    });
  });
});
