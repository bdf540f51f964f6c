/** Measuring on a simulated GPU whose kernels are C functions: comparisons, records, and what ends the search. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { COMPARE_SYMBOL } from '../../../autotune/cuda/compare.js';
import { CudaMeasurer, type CudaMeasurerOptions } from '../../../autotune/cuda/measure.js';
import { isDeviceHung } from '../../../autotune/cuda/timing.js';
import type { FinalRequest } from '../../../autotune/finals.js';
import type { Measurement, MeasureRequest } from '../../../autotune/measurement.js';
import { median } from '../../../autotune/records.js';
import { parametersOf } from '../../../codegen/signature.js';
import { UserError } from '../../../errors.js';
import type { CudaSchedule, LaunchShape } from '../../../ir/cuda.js';
import type { Kernel } from '../../../ir/kernel.js';
import { kernelWrites } from '../../../ir/kernelAccess.js';
import { scoringBucket } from '../../../ir/scoring.js';
import type { CudaAddon } from '../../../runtime/cuda/addon.js';
import type { CudaMemory, CudaProgramBinding, CudaTimeRequest } from '../../../runtime/cuda/native.js';
import { PACK_ENTRIES } from '../../../runtime/cuda/packKernels.js';
import { fakeCuda, type FakeKernel } from '../../runtime/cuda/fakeCudaAddon.js';
import { buildPackShim, hasCxx } from '../../runtime/cuda/packShim.js';
import { kernelAt } from '../fixture.js';
import { buildComparison } from './comparisonShim.js';
import { CAPACITY, cudaModule } from './fixture.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-cuda-measure-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => {
  vi.useRealTimers();
});

if (!hasCxx()) console.warn('SKIPPED measuring on a simulated GPU: g++ is missing, which builds its kernels.');

describe.skipIf(!hasCxx())('CudaMeasurer', () => {
  const module = cudaModule();
  const kernel = kernelAt(module, 'layers.0.ffn.gate_up');
  const bucket = scoringBucket({ tokens: 40, rows: 40, longest: 40 });
  const loop = (threads: number): CudaSchedule => ({ kind: 'loop', threads });
  const [REFERENCE, GOOD, ODD, LAZY, REFUSED, SICK, DEAD, SLOW, UNPRINTED, HUNGRY, SPARE, MUTE] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
  ] as const;
  const launch: LaunchShape = {
    threads: 32,
    sharedBytes: 0,
    cluster: 1,
    gridX: { kind: 'constant', count: 1 },
    gridY: { kind: 'constant', count: 1 },
  };
  const parameters = parametersOf(kernel, module);
  const down = kernelAt(module, 'layers.0.ffn.down');
  const NEIGHBOUR = 'down';
  const writtenBy = (of: Kernel): readonly number[] =>
    parametersOf(of, module).flatMap((name, i) => (kernelWrites(of).has(name) ? [i] : []));
  const sick = (isContextDead: boolean): Error =>
    Object.assign(new Error(isContextDead ? 'an illegal address' : 'too many resources'), {
      code: 'CUDA_ERROR_X',
      call: 'cuLaunchKernelEx',
      isContextDead,
    });

  function lab() {
    const { put, compare } = buildComparison(folder);
    const shim = buildPackShim(folder);
    const state = { launches: 0, isStuck: false, slowness: (_launches: number): number => 1 };
    const sizes = new Map<bigint, number>();
    const writes =
      (odd: number, from: number, of: Kernel = kernel): FakeKernel =>
      (_launch, _sizes, pointers) => {
        for (const i of writtenBy(of)) put(pointers[i]!, sizes.get(pointers[i]!)!, from, odd);
      };
    const fails =
      (isContextDead: boolean): FakeKernel =>
      () => {
        throw sick(isContextDead);
      };
    const kernels: Readonly<Record<number, FakeKernel>> = {
      [REFERENCE]: writes(0, 0),
      [GOOD]: writes(0, 0),
      [ODD]: writes(1, 0),
      [LAZY]: writes(0, 16),
      [SICK]: fails(false),
      [DEAD]: fails(true),
      [SLOW]: writes(0, 0),
      [HUNGRY]: writes(0, 0),
      [SPARE]: writes(0, 0),
      [MUTE]: () => undefined,
    };
    const base = fakeCuda({
      modules: {
        [NEIGHBOUR]: { [NEIGHBOUR]: writes(0, 0, down) },
        tw_pack: {
          [PACK_ENTRIES.rows]: (launch, sizes, pointers) => {
            shim.run(PACK_ENTRIES.rows, launch, sizes, pointers);
          },
        },
        [COMPARE_SYMBOL]: { [COMPARE_SYMBOL]: compare },
        ...Object.fromEntries(Object.entries(kernels).map(([i, k]) => [`k${i}`, { [`k${i}`]: k }])),
      },
    });
    class Memory extends base.addon.Memory {
      override copyFrom(offset: number, source: CudaMemory, sourceOffset: number, bytes: number): void {
        void source.readAsync(sourceOffset, bytes).then((data) => this.writeAsync(offset, new Uint8Array(data)));
      }
    }
    const timed: (CudaTimeRequest & { readonly symbol: string })[] = [];
    class Program extends base.addon.Program {
      readonly symbols: readonly string[];
      constructor(binding: CudaProgramBinding) {
        super(binding);
        this.symbols = binding.launches.map(({ symbol }) => symbol);
        for (const { memory, bytes } of binding.slots) sizes.set(memory.address, bytes);
      }
      override time(request: CudaTimeRequest): Promise<Float64Array> {
        timed.push({ ...request, symbol: this.symbols[0]! });
        if (state.isStuck) return new Promise(() => undefined);
        state.launches += request.repeats * (request.perSample ?? 1);
        // A kernel that needs much power is fast until the card has been under load for 0.1 s.
        const own = (symbol: string): number => {
          switch (symbol) {
            case `k${SLOW}`:
              return 50;
            case `k${SPARE}`:
              return 0.045;
            case `k${HUNGRY}`:
              return state.launches < 2000 ? 0.04 : 0.06;
            // Another kernel, which is slower next to one of the candidates.
            case NEIGHBOUR:
              return this.symbols.includes(`k${SPARE}`) ? 0.22 : 0.2;
            default:
              return 0.05;
          }
        };
        const each = request.launches.map((i) => own(this.symbols[i]!));
        const milliseconds = (each.reduce((sum, ms) => sum + ms, 0) / each.length) * state.slowness(state.launches);
        return Promise.resolve(new Float64Array(request.repeats).fill(milliseconds * (request.perSample ?? 1)));
      }
    }
    const addon: CudaAddon = { ...base.addon, Memory, Program };
    const compiled: string[][] = [];
    const device = new addon.Device(0);
    const create = (more: Partial<CudaMeasurerOptions> = {}): Promise<CudaMeasurer> =>
      CudaMeasurer.create({
        addon,
        device,
        capacity: CAPACITY,
        reference: () => loop(REFERENCE),
        ...more,
        emit: (of, _module, schedule) => {
          if (of === down)
            return {
              symbol: NEIGHBOUR,
              source: NEIGHBOUR,
              headers: [],
              parameters: parametersOf(down, module),
              tensorMaps: [],
              launch,
              waitsForPredecessor: false,
            };
          const index = schedule.kind === 'loop' ? schedule.threads : 0;
          if (index === UNPRINTED) throw new Error('no such skeleton');
          return {
            symbol: `k${index}`,
            source: `k${index}`,
            headers: [],
            parameters,
            tensorMaps: [],
            launch,
            waitsForPredecessor: false,
          };
        },
        compile: (units) => {
          compiled.push(units.map(({ symbol }) => symbol));
          const fine = units.filter(({ symbol }) => symbol !== `k${REFUSED}`);
          return Promise.resolve({
            cubins: new Map(fine.map(({ symbol }) => [symbol, Buffer.from(symbol)])),
            failures: new Map([[`k${REFUSED}`, new Error('error: 3 is not a vector')]]),
          });
        },
      });
    return { create, timed, compiled, state, live: () => base.state.live, device };
  }

  async function all(
    measurer: CudaMeasurer,
    schedules: readonly CudaSchedule[],
    more: Partial<MeasureRequest<CudaSchedule>> = {},
  ): Promise<Measurement<CudaSchedule>[]> {
    const request: MeasureRequest<CudaSchedule> = { kernel, module, bucket, reference: loop(GOOD), schedules, ...more };
    const found: Measurement<CudaSchedule>[] = [];
    for await (const measurement of measurer.measure(request)) found.push(measurement);
    return found;
  }
  const failureOf = (measurement: Measurement<CudaSchedule> | undefined): string =>
    measurement !== undefined && 'failure' in measurement ? measurement.failure : '';

  it('times candidates that match the reference, and says what is wrong with the others', async () => {
    const { create, timed, compiled, live, device } = lab();
    const measurer = await create();
    const found = await all(measurer, [GOOD, ODD, LAZY, REFUSED, SICK, UNPRINTED, GOOD].map(loop));
    expect(found).toHaveLength(7);
    expect('seconds' in found[0]! && found[0].seconds[0]).toBeCloseTo(5e-5, 12);
    expect(failureOf(found[1])).toMatch(/^1 of \d+ elements of \w+ differ from the reference's, the first in row 0/);
    expect(failureOf(found[2])).toMatch(/elements of \w+ differ .*row 0, column 0/);
    expect(failureOf(found[3])).toBe('error: 3 is not a vector');
    expect(failureOf(found[4])).toBe('too many resources');
    expect(failureOf(found[5])).toBe('no code could be generated: no such skeleton');
    expect('seconds' in found[6]!).toBe(true);
    // Compiled together and once. Candidates that fail are never timed.
    expect(compiled).toEqual([['tw_pack', COMPARE_SYMBOL], [1, 2, 3, 4, 5, 6].map((i) => `k${i}`)]);
    expect(new Set(timed.map(({ symbol }) => symbol))).toEqual(new Set([`k${GOOD}`]));
    // A tiny kernel's operands fit the L2 cache many times over, so copies are rotated.
    expect(timed[0]!.launches.length).toBeGreaterThan(1);
    expect(timed[1]!.perSample).toBeGreaterThan(1);
    measurer.release();
    device.release();
    expect(live()).toBe(0);
  });

  it("scales candidates to the default's first measurement, however fast the device is now", async () => {
    const { create, state } = lab();
    const measurer = await create();
    const secondsOf = async (
      schedules: readonly CudaSchedule[],
      more: Partial<MeasureRequest<CudaSchedule>>,
    ): Promise<number[]> =>
      (await all(measurer, schedules, more)).map((found) => ('seconds' in found ? median(found.seconds) : NaN));
    // Within one request, the device slows down steadily.
    state.slowness = (launches) => 1 + launches / 1000;
    const [start, spare] = await secondsOf([loop(GOOD), loop(SPARE)], {});
    expect(start).toBeGreaterThan(5.2e-5);
    expect(spare! / start!).toBeCloseTo(0.9, 9);
    state.slowness = () => 2;
    // In a later request it is half as fast as when the default was measured, and times are scaled.
    expect((await secondsOf([loop(SPARE)], { referenceSeconds: 5e-5 }))[0]).toBeCloseTo(4.5e-5, 12);
    expect((await secondsOf([loop(SPARE)], { referenceSeconds: 4e-5 }))[0]).toBeCloseTo(3.6e-5, 12);
    // Times of other contenders, before the device becomes faster and afterwards.
    const request = { kernel, module, bucket, reference: loop(GOOD), schedules: [], referenceSeconds: 5e-5 };
    const rival = (): Promise<readonly number[]> => {
      state.slowness = () => 1;
      return Promise.resolve([3e-5, 6e-5]);
    };
    const [half, full] = await measurer.tellBeside(request, rival);
    expect(half).toBeCloseTo(2e-5, 12);
    expect(full).toBeCloseTo(4e-5, 12);
    // Without a default to compare with, times are not scaled.
    const { referenceSeconds: _, ...unmeasured } = request;
    expect(await measurer.tellBeside(unmeasured, rival)).toEqual([3e-5, 6e-5]);
    measurer.release();
  });

  /** A final of the kernel with each of `schedules`, next to its neighbour. */
  const finalOf = (
    schedules: readonly number[],
    more: Partial<FinalRequest<CudaSchedule>> = {},
  ): FinalRequest<CudaSchedule> => ({
    module,
    bucket,
    kernels: [kernel, down],
    contenders: schedules.map((threads) => [loop(threads), loop(GOOD)]),
    seconds: 2,
    settling: 0.35,
    ...more,
  });

  it('holds finals of whole sequences under load, and returns the rounds of each', async () => {
    const { create, compiled, live, device } = lab();
    const reasons: string[] = [];
    const measurer = await create({ onNoFinal: (reason) => reasons.push(reason) });
    // In a burst, and alone, both are faster than the default.
    const bursts = await all(measurer, [loop(GOOD), loop(SPARE), loop(HUNGRY)]);
    expect(bursts.map((found) => ('seconds' in found ? Math.round(median(found.seconds) * 1e6) : NaN))).toEqual([
      50, 45, 40,
    ]);
    let rounds = 0;
    const found = await measurer.hold(
      finalOf([GOOD, SPARE, HUNGRY], {
        onRound: () => {
          rounds++;
        },
      }),
    );
    expect(rounds).toBeGreaterThanOrEqual(6);
    expect(found!.map((own) => own.length)).toEqual([rounds, rounds, rounds]);
    // One makes its neighbour take 220 instead of 200; the other is throttled.
    for (const [i, seconds] of [2.5e-4, 2.65e-4, 2.6e-4].entries())
      for (const round of found![i]!) expect(round).toBeCloseTo(seconds, 12);
    // The contenders' order is not that of their times, and compiled kernels are reused.
    const again = await measurer.hold(finalOf([SPARE, GOOD], { settling: 0.15 }));
    for (const [i, seconds] of [2.65e-4, 2.5e-4].entries()) expect(again![i]![0]).toBeCloseTo(seconds, 12);
    expect(compiled.slice(1)).toEqual([[REFERENCE, GOOD, SPARE, HUNGRY].map((i) => `k${i}`), [NEIGHBOUR]]);
    expect(reasons).toEqual([]);
    measurer.release();
    device.release();
    expect(live()).toBe(0);
  });

  it('says why it cannot hold a final, and holds the next', async () => {
    const { create, live, device } = lab();
    const reasons: string[] = [];
    const measurer = await create({ onNoFinal: (reason) => reasons.push(reason) });
    // A buffer too large for any memory.
    const wide = {
      ...module,
      buffers: module.buffers.map((buffer) =>
        kernelWrites(down).has(buffer.name) ? { ...buffer, columns: 2 ** 40 } : buffer,
      ),
    };
    expect(await measurer.hold(finalOf([GOOD, SPARE], { module: wide }))).toBeUndefined();
    expect(reasons.splice(0)).toEqual([expect.stringMatching(/./)]);
    // Kernels that cannot be printed, compiled or launched, or that leave no results.
    for (const schedule of [UNPRINTED, REFUSED, SICK])
      expect(await measurer.hold(finalOf([GOOD, schedule]))).toBeUndefined();
    expect(await measurer.hold(finalOf([MUTE], { kernels: [kernel] }))).toBeUndefined();
    expect(reasons.splice(0)).toEqual([
      'no such skeleton',
      'error: 3 is not a vector',
      'too many resources',
      expect.stringMatching(/leaves no numbers in \w+/),
    ]);
    expect(await measurer.hold(finalOf([GOOD, SPARE]))).toHaveLength(2);
    expect(reasons).toEqual([]);
    measurer.release();
    device.release();
    expect(live()).toBe(0);
  });

  it('ends an aborted final without an error', async () => {
    const { create, live, device } = lab();
    const reasons: string[] = [];
    const measurer = await create({ onNoFinal: (reason) => reasons.push(reason) });
    const controller = new AbortController();
    let rounds = 0;
    const onRound = (): void => {
      if (++rounds === 2) controller.abort();
    };
    expect(await measurer.hold(finalOf([GOOD, SPARE], { onRound, signal: controller.signal }))).toBeUndefined();
    expect([rounds, reasons]).toEqual([2, []]);
    measurer.release();
    device.release();
    expect(live()).toBe(0);
  });

  it('fails when a final makes the device unusable', async () => {
    const { create, live, device } = lab();
    const reasons: string[] = [];
    const measurer = await create({ onNoFinal: (reason) => reasons.push(reason) });
    await expect(measurer.hold(finalOf([GOOD, DEAD]))).rejects.toMatchObject({
      name: 'UserError',
      message: 'A final of 2 kernels at 40 tokens made the device unusable: an illegal address',
      hint: expect.stringContaining('again'),
    });
    expect(reasons).toEqual([]);
    measurer.release();
    device.release();
    expect(live()).toBe(0);
  });

  it('fails when a final hangs, and releases nothing that the hung kernel uses', async () => {
    // Time passes only where nothing else is left to happen.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const { create, live, state } = lab();
    const measurer = await create({ patienceSeconds: 0.5 });
    await measurer.hold(finalOf([GOOD, SPARE]));
    const before = live();
    state.isStuck = true;
    let error: unknown;
    void measurer.hold(finalOf([GOOD, SPARE])).catch((reason: unknown) => {
      error = reason;
    });
    await expect
      .poll(() => {
        vi.advanceTimersByTime(500);
        return error;
      })
      .toBeInstanceOf(UserError);
    expect(isDeviceHung(error)).toBe(true);
    // Two programs, and the modules of three kernels.
    expect(live()).toBe(before + 5);
  });

  it('abandons hopeless candidates early', async () => {
    const { create, timed } = lab();
    const measurer = await create();
    const [slow] = await all(measurer, [loop(SLOW)], { bestSeconds: 1e-5 });
    expect(slow !== undefined && 'seconds' in slow && slow.seconds.length).toBe(3);
    expect(timed).toHaveLength(1);
    measurer.release();
  });

  it('yields the record of a candidate that made the device unusable, then fails', async () => {
    const { create } = lab();
    const measurer = await create();
    const found: Measurement<CudaSchedule>[] = [];
    const run = async (): Promise<void> => {
      for await (const measurement of measurer.measure({
        kernel,
        module,
        bucket,
        reference: loop(GOOD),
        schedules: [loop(GOOD), loop(DEAD), loop(SLOW)],
      }))
        found.push(measurement);
    };
    await expect(run()).rejects.toThrow(/made the device unusable: an illegal address/);
    expect(found).toHaveLength(2);
    expect(failureOf(found[1])).toBe('an illegal address');
    measurer.release();
  });
});
