/**
 * Loads weights onto the fake driver in many small steps, bit for bit. The fake driver's streams execute nothing until
 * something waits for them, so data overwritten too early, or read too early, shows as wrong bits.
 */
import { copyFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import type { CudaAddon } from '../../../runtime/cuda/addon.js';
import { type LoadPlan, planLoading } from '../../../runtime/cuda/loadPlan.js';
import type { CudaMemory, CudaProgram, CudaUploadStep, CudaUploadTimes } from '../../../runtime/cuda/native.js';
import {
  loadDeviceWeights,
  loadingBytes,
  type LoadTimes,
  printLoadTimes,
  weightSlots,
} from '../../../runtime/cuda/weights.js';
import { planWeights } from '../../../runtime/weightPlan.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { decl, elements, K, weightWorld } from '../../support/weightWorld.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, hasCxx, PACK_PTX } from './packShim.js';
import { casesHere } from '../../support/thorough.js';

const folder = temporaryFolder();
const { tensors, weights: plain, ordered, constants, expected } = weightWorld(folder);
const weights = [...plain, ...ordered];
const weightPlan = planWeights(weights, constants, tensors, { isMapping: false });

if (hasCxx())
  describeFake('loadDeviceWeights', (fake) => {
    fake.host(buildPackShim(folder).library);
    const device = new fake.addon.Device(0);
    const pack = new fake.addon.Module(device, new TextEncoder().encode(PACK_PTX));
    const memory = new fake.addon.Memory(device, weightPlan.packedBytes);
    const refill = (): void => {
      memory.fill(0xff); // Bytes that were never written read as NaN.
      device.synchronize();
    };
    refill();
    const atRest = fake.live();
    afterAll(() => {
      for (const held of [memory, pack, device]) held.release();
      expect(fake.live()).toBe(0);
    });

    /** The addon with this many upload threads, and a record of its requests. */
    const addonWith = (
      threads: number,
      onLoad: (steps: readonly CudaUploadStep[]) => void = () => undefined,
    ): CudaAddon => ({
      ...fake.addon,
      Upload: class extends fake.addon.Upload {
        constructor() {
          super(device, { threads, buffers: 2, bufferBytes: 4096 });
        }
        override load(program: CudaProgram, steps: readonly CudaUploadStep[]): Promise<CudaUploadTimes> {
          onLoad(steps);
          return super.load(program, steps);
        }
      },
    });

    const load = (
      loadPlan: LoadPlan,
      addon = addonWith(3),
      more: { target?: CudaMemory; plan?: typeof weightPlan; done?: number[] } = {},
    ): Promise<LoadTimes> =>
      loadDeviceWeights({
        addon,
        device,
        pack,
        weightPlan: more.plan ?? weightPlan,
        loadPlan,
        weights: more.target ?? memory,
        onProgress: ({ doneBytes }) => more.done?.push(doneBytes),
      });

    /** Names of weights whose bits are not the reference's. */
    function wrong(): string[] {
      const slots = weightSlots(weightPlan, memory);
      return weights
        .filter((weight) => {
          const { offset, bytes } = slots.get(weight.name)!;
          return elements(weight, memory.read(offset, bytes)).join() !== expected(weight).join();
        })
        .map(({ name }) => name);
    }

    // 256: exactly one row of the largest f32 source. 1 MiB: everything at once.
    const STAGED: readonly (readonly [number, number])[] = [
      [256, 1],
      [256, 3],
      [700, 1],
      [700, 3],
      [700, 8],
      [2048, 2],
      [1 << 20, 3],
    ];
    it.each(casesHere(STAGED, 0, 3, 6))(
      'is exact with staging buffers of %i bytes and %i threads',
      async (staging, threads) => {
        // Its columns are in another order, as is known once its file is open.
        const loadPlan = planLoading(weightPlan, staging, (tensor) => tensor === tensors.get('permuted'));
        for (const step of loadPlan.steps) {
          expect(step.stagedBytes).toBeLessThanOrEqual(staging);
          expect(step.layings.length).toBeLessThanOrEqual(64);
        }
        refill();
        fake.reset();
        const done: number[] = [];
        const times = await load(loadPlan, addonWith(threads), { done });
        const allocated = fake.log('alloc').map((line) => Number(line.split(' ')[1]));
        expect(allocated.reduce((a, b) => a + b)).toBe(loadingBytes(loadPlan));
        // Pinned memory is allocated once, whatever the number of weights and steps.
        expect(fake.log('pin')).toEqual([`pin ${2 * threads * 4096}`]);
        expect(fake.live()).toBe(atRest);
        expect(wrong()).toEqual([]);
        expect(done.at(-1)).toBe(loadPlan.steps.reduce((sum, step) => sum + step.weightBytes, 0));
        expect([...done].sort((a, b) => a - b)).toEqual(done);
        expect(times.copiedBytes).toBe(
          fake
            .log('upload')
            .map((line) => Number(line.split(' ')[1]))
            .reduce((a, b) => a + b) -
            loadPlan.jobBytes -
            20,
        );
        expect(times.streaming.total).toBeGreaterThanOrEqual(times.streaming.reading);
        // The driver's clock: one millisecond per launch.
        expect(times.streaming.device).toBeCloseTo(loadPlan.steps.flatMap(({ layings }) => layings).length / 1000, 5);
        const slots = weightSlots(weightPlan, memory);
        expect(slots.get('w_twin')).toEqual(slots.get('w_q'));
      },
    );

    it('copies ahead of packing, into three buffers in turn, each only after it was packed', async () => {
      let asked: readonly CudaUploadStep[] = [];
      const loadPlan = planLoading(weightPlan, 700);
      await load(
        loadPlan,
        addonWith(1, (steps) => {
          asked = steps;
        }),
      );
      const staged = asked.filter(({ parts }) => parts.length > 0);
      expect(staged.length).toBeGreaterThan(20);
      staged.forEach(({ parts, after }, i) => {
        expect(new Set(parts.map(({ target }) => target))).toEqual(new Set([staged[i % 3]!.parts[0]!.target]));
        expect(after).toBe(i < 3 ? 0 : asked.indexOf(staged[i - 3]!) + 1);
      });
      expect(new Set(staged.flatMap(({ parts }) => parts.map(({ target }) => target))).size).toBe(3);
    });

    it('would be wrong if copies did not wait for launches that read what they overwrite', async () => {
      // What the device decodes wrongly it may find damaged, and then the host decodes it.
      const { steps, ...rest } = planLoading(weightPlan, 700, () => true);
      refill();
      await load({ ...rest, steps: steps.map((step) => ({ ...step, after: 0 })) }, addonWith(1));
      expect(wrong()).not.toEqual([]);
    });

    it('waits only at the end: no synchronization per weight or step', async () => {
      refill();
      fake.reset();
      let waits = 0;
      const program = class extends fake.addon.Program {
        override run(): never {
          waits++;
          throw new Error('a run of its own');
        }
      };
      const loadPlan = planLoading(weightPlan, 700);
      await load(loadPlan, { ...addonWith(2), Program: program });
      expect(waits).toBe(0);
      // The jobs, then two lanes and the device at the end, the marks of damage, then the literal weight.
      expect(fake.log('sync')).toHaveLength(6);
      expect(wrong()).toEqual([]);
    });

    const calls = [
      'cuMemAlloc_v2',
      'cuMemHostAlloc',
      'cuStreamCreate',
      'cuEventCreate',
      'cuEventRecord',
      'cuEventSynchronize',
      'cuStreamWaitEvent',
      'cuStreamSynchronize',
      'cuMemcpyHtoDAsync_v2',
      'cuLaunchKernelEx',
      'cuMemsetD8Async',
    ];
    it.each(casesHere(calls, 0, 2, 6, 7))(
      'releases everything if %s fails, early or late, and succeeds afterwards',
      async (call) => {
        const loadPlan = planLoading(weightPlan, 700);
        let failures = 0;
        for (const after of [1, 2, 7, 23]) {
          fake.reset();
          fake.fail(call, CODES.outOfMemory, after);
          const error: unknown = await load(loadPlan).then(
            () => undefined,
            (reason: unknown) => reason,
          );
          fake.reset();
          if (error !== undefined) expect(error).toMatchObject({ code: 'CUDA_ERROR_OUT_OF_MEMORY', call });
          failures += error === undefined ? 0 : 1;
          expect(fake.live()).toBe(atRest);
        }
        expect(failures).toBeGreaterThan(0);
        refill();
        await load(loadPlan);
        expect(wrong()).toEqual([]);
      },
    );

    it('takes little pinned memory if little is loaded', async () => {
      fake.reset();
      await load(planLoading(weightPlan), fake.addon);
      expect(fake.log('pin')).toEqual([`pin ${4 << 20}`]);
      expect(wrong()).toEqual([]);
    });

    it('names a file that was truncated before or while it is read', async () => {
      const whole = tensors.get('down');
      if (whole?.kind !== 'file') throw new Error('not a file');
      const file = join(folder, 'cut.bin');
      const plan = planWeights(
        [decl('w_down', [['down', K]], { k: 61 })],
        [],
        new Map([['down', { ...whole, file }]]),
        { isMapping: false },
      );
      const target = new fake.addon.Memory(device, plan.packedBytes);
      copyFileSync(whole.file, file);
      const cut = addonWith(2, () => truncateSync(file, 1000));
      const error: unknown = await load(planLoading(plan, 700), cut, { plan, target }).catch(
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(UserError);
      // At its end, or at the beginning of a later piece, which is read beside the one that is cut.
      const at = /cut\.bin cannot be read at byte (\d+): it ends there by now/.exec(String(error))?.[1];
      expect(Number(at)).toBeGreaterThanOrEqual(1000);
      await expect(load(planLoading(plan, 700), addonWith(2), { plan, target })).rejects.toThrow(UserError);
      target.release();
      expect(fake.live()).toBe(atRest);
    });

    it('takes hardly any pinned memory if all weights are random', async () => {
      const plan = planWeights([decl('w_noise', [['noise', 70]], { format: 'f16' })], [], tensors, {
        isMapping: false,
      });
      const loadPlan = planLoading(plan);
      expect([loadPlan.stagings, loadPlan.stagingBytes]).toEqual([0, 0]);
      const target = new fake.addon.Memory(device, plan.packedBytes);
      fake.reset();
      await load(loadPlan, fake.addon, { plan, target });
      expect(fake.log('pin')).toEqual(['pin 4096']);
      target.release();
    });
  });
else process.stderr.write('SKIPPED: loading onto a fake device: no g++ on PATH\n');

it('reports its speed and what it waited for', () => {
  const streaming = { total: 0.2, reading: 0.15, bus: 0.04, launches: 0.002, device: 0.05 };
  expect(printLoadTimes({ preparing: 0.03, releasing: 0.02, copiedBytes: 8e9, streaming })).toBe(
    'weights loaded in 0.25 s: 8.00 GB of files at 32.0 GB/s (streaming 200 ms at 40.0 GB/s: ' +
      'threads reading 75 %, waiting for the bus 20 %, for launches 1 %, device laying out 25 %; ' +
      'preparing 30 ms, releasing 20 ms)',
  );
  expect(printLoadTimes({ preparing: 0.01, releasing: 0, copiedBytes: 0, streaming })).toBe(
    'weights made up in 0.21 s',
  );
});

it('counts every byte of weights once in its progress', () => {
  const total = planLoading(weightPlan, 700).steps.reduce((sum, step) => sum + step.weightBytes, 0);
  // Rows without padding, 16-bit, k rounded up to 8: 56 columns in most, 64 in w_down, 52 in tables.
  const rows = 96 + 32 + 122 + 70 + 236 + 96 + 24 + 64 + 24 + 64 + 32 + 122 + 96 + 48;
  expect(total).toBe(rows * 56 * 2 + 24 * 2 + K * 64 * 2 + (70 + 64 + 2 * 96) * 52 * 2);
});

it('refuses rows larger than a staging buffer, and layouts of CPUs', () => {
  expect(() => planLoading(weightPlan, 200)).toThrow(UserError);
  expect(() =>
    planLoading(planWeights([decl('p', [['q', 96]], { layout: 'panels' })], [], tensors, { isMapping: false })),
  ).toThrow('Weight p is laid out for a CPU');
});
