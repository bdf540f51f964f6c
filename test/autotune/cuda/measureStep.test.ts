/** Measuring step's kernels on a simulated GPU: what they are given, and which rows of a state are compared. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { COMPARE_SYMBOL } from '../../../autotune/cuda/compare.js';
import { CudaMeasurer } from '../../../autotune/cuda/measure.js';
import type { Measurement } from '../../../autotune/measurement.js';
import { parametersOf } from '../../../codegen/signature.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import type { AttentionKernel, Kernel } from '../../../ir/kernel.js';
import { kernelWrites, outputsOf } from '../../../ir/kernelAccess.js';
import type { Bucket } from '../../../ir/plan.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import type { CudaMemory, CudaProgramBinding, CudaTimeRequest } from '../../../runtime/cuda/native.js';
import { PACK_ENTRIES } from '../../../runtime/cuda/packKernels.js';
import { fakeCuda, type FakeKernel } from '../../runtime/cuda/fakeCudaAddon.js';
import { buildPackShim, hasCxx } from '../../runtime/cuda/packShim.js';
import { CACHE_ROWS, stepBucket } from '../fixture.js';
import { buildComparison } from './comparisonShim.js';
import { cudaStepModule } from './fixture.js';

const koffi = loadKoffi();

const folder = mkdtempSync(join(tmpdir(), 'tilewright-cuda-step-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

if (!hasCxx()) console.warn('SKIPPED measuring step on a simulated GPU: g++ is missing, which builds its kernels.');

describe.skipIf(!hasCxx())('CudaMeasurer of step', () => {
  const module = cudaStepModule();
  const scattered = (kernel: Kernel): readonly { buffer: string; via: string }[] =>
    outputsOf(kernel).flatMap((o) =>
      o.kind === 'store' && o.via !== undefined ? [{ buffer: o.buffer, via: o.via }] : [],
    );
  const writer = module.kernels.find((kernel) => scattered(kernel).length === 2)!;
  const attention = module.kernels.find((kernel): kernel is AttentionKernel => kernel.anchor === 'attention')!;
  const loop = (threads: number): CudaSchedule => ({ kind: 'loop', threads });

  /** Measures a stand-in for `kernel`. It is called with its schedule's number and the memory of its parameters. */
  async function measure(
    kernel: Kernel,
    bucket: Bucket,
    schedules: readonly number[],
    run: (schedule: number, memory: ReadonlyMap<string, ArrayBuffer>) => void,
  ) {
    const { compare } = buildComparison(folder);
    const shim = buildPackShim(folder);
    const parameters = parametersOf(kernel, module);
    const sizes = new Map<bigint, number>();
    const programs: CudaProgramBinding[] = [];
    const standIn =
      (schedule: number): FakeKernel =>
      (_launch, _sizes, pointers) => {
        const views = parameters.map((name, i) => [name, koffi.view(pointers[i]!, sizes.get(pointers[i]!)!)] as const);
        run(schedule, new Map(views));
      };
    const base = fakeCuda({
      modules: {
        tw_pack: {
          [PACK_ENTRIES.rows]: (launch, extents, pointers) => {
            shim.run(PACK_ENTRIES.rows, launch, extents, pointers);
          },
        },
        [COMPARE_SYMBOL]: { [COMPARE_SYMBOL]: compare },
        ...Object.fromEntries(schedules.map((i) => [`k${i}`, { [`k${i}`]: standIn(i) }])),
      },
    });
    class Memory extends base.addon.Memory {
      // In order with writes, as the driver does both.
      override fill(byte: number, offset = 0, bytes = this.sizeBytes - offset): void {
        this.write(offset, new Uint8Array(bytes).fill(byte));
      }
      override copyFrom(offset: number, source: CudaMemory, sourceOffset: number, bytes: number): void {
        void source.readAsync(sourceOffset, bytes).then((data) => this.writeAsync(offset, new Uint8Array(data)));
      }
    }
    class Program extends base.addon.Program {
      constructor(binding: CudaProgramBinding) {
        super(binding);
        programs.push(binding);
        for (const { memory, bytes } of binding.slots) sizes.set(memory.address, bytes);
      }
      override time({ repeats, perSample }: CudaTimeRequest): Promise<Float64Array> {
        return Promise.resolve(new Float64Array(repeats).fill(0.05 * (perSample ?? 1)));
      }
    }
    const addon = { ...base.addon, Memory, Program };
    const measurer = await CudaMeasurer.create({
      addon,
      device: new addon.Device(0),
      capacity: stepBucket(64, 64),
      reference: () => loop(schedules[0]!),
      emit: (_kernel, _module, schedule) => {
        const symbol = `k${schedule.kind === 'loop' ? schedule.threads : 0}`;
        const one = { kind: 'constant', count: 1 } as const;
        const launch = { threads: 32, sharedBytes: 0, cluster: 1, gridX: one, gridY: one } as const;
        return { symbol, source: symbol, headers: [], parameters, tensorMaps: [], launch, waitsForPredecessor: false };
      },
      compile: (units) =>
        Promise.resolve({
          cubins: new Map(units.map(({ symbol }) => [symbol, Buffer.from(symbol)])),
          failures: new Map(),
          compilerBuild: 'none',
        }),
    });
    const found: Measurement<CudaSchedule>[] = [];
    const request = { kernel, module, bucket, reference: loop(schedules[0]!), schedules: schedules.map(loop) };
    for await (const measurement of measurer.measure(request)) found.push(measurement);
    await measurer.idle();
    measurer.release();
    const copies = programs.find(({ launches }) => launches[0]!.symbol === `k${schedules[0]!}`)!.launches.length;
    return { found, copies };
  }

  const int32 = (memory: ReadonlyMap<string, ArrayBuffer>, name: string): Int32Array =>
    new Int32Array(memory.get(name)!);
  /** 2-byte numbers of a row. Rows are padded alike in all buffers of equal columns. */
  const columnsOf = (name: string): number => Number(module.buffers.find((b) => b.name === name)!.columns);

  it('gives attention paths within the list, the list rows within the state, and several copies', async () => {
    const { mask } = attention;
    if (mask.kind !== 'path') throw new Error('step attends over paths');
    const seen: { tokens: number; begin: number[]; position: number[]; keys: number[]; rows: number }[] = [];
    const look = (tokens: number) => (_schedule: number, memory: ReadonlyMap<string, ArrayBuffer>) => {
      const [begin, position] = [mask.begin, mask.position].map((name) => [...int32(memory, name).subarray(0, tokens)]);
      const end = Math.max(...begin!.map((from, t) => from + position![t]! + 1));
      const keys = [...int32(memory, mask.key).subarray(0, end)];
      const rows = Math.floor(memory.get(attention.k)!.byteLength / 2 / columnsOf(attention.k));
      seen.push({ tokens, begin: begin!, position: position!, keys, rows });
      for (const name of kernelWrites(attention)) new Uint16Array(memory.get(name)!).fill(0x3f80);
    };
    const few = await measure(attention, stepBucket(2, 100), [1], look(2));
    await measure(attention, stepBucket(40, 16), [1], look(40));
    await measure(attention, stepBucket(48, 64, 16), [1], look(48));
    for (const { tokens, begin, position, keys, rows } of seen) {
      expect(begin.length).toBe(tokens);
      for (const [t, from] of begin.entries()) {
        expect(from).toBeGreaterThanOrEqual(0);
        expect(position[t]).toBeGreaterThanOrEqual(0);
        // A path begins a page.
        expect(keys[from]! % 16).toBe(0);
      }
      expect(Math.min(...keys)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...keys)).toBeLessThan(Math.min(rows, CACHE_ROWS));
    }
    expect(seen.at(0)).toMatchObject({ begin: [0, 100], position: [99, 99] });
    expect(seen.some(({ tokens, position }) => tokens === 48 && position.every((p) => p === 63))).toBe(true);
    expect(few.copies).toBeGreaterThan(1);
  });

  it('compares the rows of a state that slots name, and refuses a kernel that writes another', async () => {
    const [RIGHT, SAME, SHIFTED, SILENT, WRONG] = [1, 2, 3, 4, 5];
    const tokens = 24;
    const others = [...kernelWrites(writer)].filter((name) => scattered(writer).every(({ buffer }) => buffer !== name));
    const write = (schedule: number, memory: ReadonlyMap<string, ArrayBuffer>): void => {
      for (const name of others) new Uint8Array(memory.get(name)!).fill(0x3f);
      for (const { buffer, via } of scattered(writer)) {
        const state = new Uint16Array(memory.get(buffer)!);
        const width = columnsOf(buffer);
        const slots = int32(memory, via).subarray(0, tokens);
        expect(new Set(slots).size).toBe(tokens);
        slots.forEach((slot, t) => {
          if (schedule === SILENT && t === tokens - 1) return;
          const row = schedule === SHIFTED ? (slot + 1) % tokens : slot;
          for (let c = 0; c < width; c++) state[row * width + c] = 0x3f80 + (t % 64);
          if (schedule === WRONG && t === 7) state[row * width + 3] = 0x4180;
        });
      }
    };
    const { found } = await measure(writer, stepBucket(tokens, 24), [RIGHT!, SAME!, SHIFTED!, SILENT!, WRONG!], write);
    expect(found.map((each) => ('failure' in each ? each.failure : 'fine'))).toEqual([
      'fine',
      'fine',
      expect.stringMatching(/elements of \w+ differ/),
      expect.stringMatching(/elements of \w+ differ from the reference's, the first in row 23/),
      expect.stringMatching(/1 of \d+ elements of \w+ differ from the reference's, the first in row 7, column 3/),
    ]);
  });
});
