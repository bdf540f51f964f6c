/**
 * Replicas that share the reading of weights, on the fake driver: every way in which parts arrive or fail, bit for bit.
 */
import { copyFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { SiblingRelay, Siblings } from '../../../driver/devices/siblings.js';
import type { CudaAddon } from '../../../runtime/cuda/addon.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import type {
  CudaMemory,
  CudaProgram,
  CudaSharedHandle,
  CudaUploadStep,
  CudaUploadTimes,
} from '../../../runtime/cuda/native.js';
import type { WeightDecl } from '../../../ir/kernel.js';
import { loadSharedWeights, partWeights, readsFiles } from '../../../runtime/cuda/shareWeights.js';
import { type LoadTimes, printLoadTimes, weightSlots } from '../../../runtime/cuda/weights.js';
import { planWeights, tensorFiles, type WeightPlan } from '../../../runtime/weightPlan.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { elements, weightWorld } from '../../support/weightWorld.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, hasCxx, PACK_PTX } from './packShim.js';
import { casesHere } from '../../support/thorough.js';

const folder = temporaryFolder();
const { tensors, weights, constants, expected } = weightWorld(folder);
const whole = planWeights(weights, constants, tensors, { isMapping: false });
const fileBytes = (plan: WeightPlan): number =>
  plan.weights.reduce(
    (sum, weight) =>
      sum + (weight.kind === 'packed' ? tensorFiles(weight).reduce((bytes, { own }) => bytes + own, 0) : 0),
    0,
  );

describe('partWeights', () => {
  it.each([1, 2, 3, 4, 7, 40])('divides weights into %i ranges that cover all of the memory, in order', (count) => {
    const parts = partWeights(whole, count);
    expect(parts).toHaveLength(count);
    expect(parts.flatMap(({ plan }) => plan.weights)).toEqual(whole.weights);
    let end = 0;
    for (const { offset, bytes, plan } of parts) {
      expect(offset).toBe(end);
      end += bytes;
      for (const weight of plan.weights) {
        expect(weight.kind).not.toBe('mapped');
        if (weight.kind === 'mapped') continue;
        expect(weight.offset).toBeGreaterThanOrEqual(offset);
        expect(weight.offset + weight.bytes).toBeLessThanOrEqual(end);
      }
    }
    expect(end).toBe(whole.packedBytes);
    const largest = Math.max(...whole.weights.map((weight) => fileBytes({ ...whole, weights: [weight] })));
    for (const { plan } of parts)
      expect(Math.abs(fileBytes(plan) - fileBytes(whole) / count)).toBeLessThanOrEqual(largest);
  });

  it('leaves slots out of all ranges: every replica makes its own', () => {
    const slots: WeightDecl = {
      ...{ name: 'b', layout: 'kmajor', format: 'bf16', k: 16, pairing: { kind: 'none' } },
      sources: [{ tensor: 'w', rows: 8 }],
      slots: { count: 5, holds: 'b' },
    };
    const plan = planWeights([slots, ...weights], constants, tensors, { isMapping: false });
    const own = plan.weights.at(-1)!;
    expect(own).toMatchObject({ kind: 'slots', names: ['b'], offset: whole.packedBytes });
    const parts = partWeights(plan, 3);
    expect(parts.map(({ offset, bytes }) => [offset, bytes])).toEqual(
      partWeights(whole, 3).map(({ offset, bytes }) => [offset, bytes]),
    );
    for (const { plan: each } of parts) {
      expect(each.weights.at(-1)).toBe(own);
      expect(planLoading(each).zeros).toContainEqual(expect.objectContaining({ offset: whole.packedBytes }));
    }
  });

  it('has nothing to divide if nothing is read', () => {
    const made = { ...whole, weights: whole.weights.filter((weight) => weight.kind === 'literal') };
    expect([readsFiles(whole), readsFiles(made)]).toEqual([true, false]);
    expect(partWeights(made, 3).flatMap(({ plan }) => plan.weights)).toEqual(made.weights);
  });
});

if (hasCxx())
  describeFake('loadSharedWeights', (fake) => {
    fake.host(buildPackShim(folder).library);
    const device = new fake.addon.Device(0);
    const pack = new fake.addon.Module(device, new TextEncoder().encode(PACK_PTX));
    const atRest = fake.live();
    afterEach(() => {
      fake.reset();
      expect(fake.live()).toBe(atRest);
    });
    afterAll(() => {
      for (const held of [pack, device]) held.release();
    });

    interface Faults {
      readonly share?: Error;
      readonly copy?: Error;
      readonly plan?: WeightPlan;
    }

    /** Replicas as separate processes: memory by handle, messages through the relay. */
    class Replicas {
      readonly relay: SiblingRelay;
      readonly memories: CudaMemory[] = [];
      readonly members: Siblings[] = [];
      /** Bytes of files that each replica loaded onto its device. */
      readonly uploaded: number[];
      private readonly faults: readonly Faults[];

      constructor(faults: readonly Faults[]) {
        this.faults = faults;
        this.relay = new SiblingRelay(faults.length);
        this.uploaded = faults.map(() => 0);
        faults.forEach((_, index) => {
          const member = new Siblings({ index, count: faults.length }, (word) =>
            setImmediate(() => this.relay.say(index, word)),
          );
          this.members.push(member);
          this.relay.join(index, (from, word) => setImmediate(() => member.hear(from, word)));
          this.memories.push(this.memory(index));
        });
      }

      async load(index: number, patience?: { factor: number; seconds: number }): Promise<LoadTimes> {
        const { plan: weightPlan = whole } = this.faults[index]!;
        return loadSharedWeights(
          {
            addon: this.addon(index),
            device,
            pack,
            weightPlan,
            loadPlan: planLoading(weightPlan),
            weights: this.memories[index]!,
          },
          this.members[index]!.exchange(0),
          patience,
        );
      }

      all(): Promise<LoadTimes[]> {
        return Promise.all(this.faults.map((_, index) => this.load(index)));
      }

      /** Names of weights with wrong contents. */
      wrong(index: number): string[] {
        const slots = weightSlots(whole, this.memories[index]!);
        return weights
          .filter((weight) => {
            const { offset, bytes } = slots.get(weight.name)!;
            return elements(weight, this.memories[index]!.read(offset, bytes)).join() !== expected(weight).join();
          })
          .map(({ name }) => name);
      }

      release(): void {
        for (const memory of this.memories) memory.release();
      }

      private memory(index: number): CudaMemory {
        const faults = this.faults[index]!;
        const { memories } = this;
        const memory = new (class extends fake.addon.Memory {
          override share(): CudaSharedHandle {
            if (faults.share !== undefined) throw faults.share;
            return { handle: Uint8Array.of(index), offset: 0 };
          }
          override async copyFromProcess(
            offset: number,
            { handle }: CudaSharedHandle,
            sourceOffset: number,
            bytes: number,
          ): Promise<{ opening: number; copying: number }> {
            await sleep(5);
            if (faults.copy !== undefined) throw faults.copy;
            await this.writeAsync(offset, new Uint8Array(memories[handle[0]!]!.read(sourceOffset, bytes)));
            return { opening: 0, copying: 0 };
          }
        })(device, whole.packedBytes);
        memory.fill(0xff); // Bytes that were never written read as NaN.
        device.synchronize();
        return memory;
      }

      private addon(index: number): CudaAddon {
        const { uploaded } = this;
        return {
          ...fake.addon,
          Upload: class extends fake.addon.Upload {
            constructor() {
              super(device, { threads: 2, buffers: 2, bufferBytes: 4096 });
            }
            override async load(program: CudaProgram, steps: readonly CudaUploadStep[]): Promise<CudaUploadTimes> {
              const times = await super.load(program, steps);
              uploaded[index]! += this.copiedBytes;
              return times;
            }
          },
        };
      }
    }

    const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
    /** With column factors, which parts may share. */
    const once = fileBytes(whole);

    it.each(casesHere([1, 2, 3, 4, 6, whole.weights.length + 3], 1, 3))(
      'reads files once for %i replicas, of which some may have no part',
      async (count) => {
        const replicas = new Replicas(Array.from({ length: count }, () => ({})));
        const times = await replicas.all();
        for (let i = 0; i < count; i++) expect(replicas.wrong(i)).toEqual([]);
        expect(sum(replicas.uploaded)).toBeLessThanOrEqual(once);
        for (const { sharing, copiedBytes } of times) {
          expect(sharing?.lost).toEqual([]);
          expect(copiedBytes).toBeLessThanOrEqual(once);
        }
        expect(sum(times.map(({ sharing }) => sharing!.copiedBytes))).toBe((count - 1) * whole.packedBytes);
        if (count > 1)
          expect(printLoadTimes(times[0]!)).toMatch(/waited [\d.]+ s for other devices, [\d.]+ GB copied from them in/);
        replicas.release();
      },
    );

    it.each([
      ['cannot share its memory', 1, { share: new Error('CUDA_ERROR_NOT_SUPPORTED') }, [1, 0, 1], /NOT_SUPPORTED/],
      ['cannot reach others', 1, { copy: new Error('CUDA_ERROR_PEER_ACCESS_UNSUPPORTED') }, [0, 2, 0], /PEER_ACCESS/],
    ] as const)('reads the parts from files where a replica %s', async (_what, at, fault, lost, reason) => {
      const replicas = new Replicas([0, 1, 2].map((index) => (index === at ? fault : {})));
      const times = await replicas.all();
      for (let i = 0; i < 3; i++) expect(replicas.wrong(i)).toEqual([]);
      expect(times.map(({ sharing }) => sharing!.lost.length)).toEqual(lost);
      for (const { sharing } of times) for (const one of sharing!.lost) expect(one.reason).toMatch(reason);
      expect(printLoadTimes(times[lost.findIndex((count) => count > 0)]!)).toMatch(/read from files as well/);
      replicas.release();
    });

    it('does without a sibling that is gone before it offers, and reads the part of one that dies later', async () => {
      const replicas = new Replicas([{}, {}, {}]);
      const [a, b] = [replicas.load(0), replicas.load(1)];
      replicas.relay.leave(2, 'its process ended: SIGKILL');
      const times = await Promise.all([a, b]);
      expect(times.map(({ sharing }) => sharing!.lost)).toEqual(
        [0, 1].map(() => [{ sibling: 2, reason: 'its process ended: SIGKILL' }]),
      );
      expect([replicas.wrong(0), replicas.wrong(1)]).toEqual([[], []]);
      replicas.release();

      const others = new Replicas([{}, {}]);
      const first = others.load(0, { factor: 0, seconds: 0.01 });
      await others.members[1]!.exchange(0).offerOf(0);
      others.relay.leave(0, 'its process ended: SIGKILL');
      const { sharing } = await others.load(1);
      expect(sharing!.lost).toEqual([]);
      expect(others.wrong(1)).toEqual([]);
      await first;
      others.release();
    });

    it('waits for a slow sibling only for a limited time', async () => {
      const replicas = new Replicas([{}, {}]);
      const first = await replicas.load(0, { factor: 0, seconds: 0.05 });
      const second = await replicas.load(1);
      expect(first.sharing!.lost).toMatchObject([{ sibling: 1, reason: expect.stringMatching(/not ready/) as string }]);
      expect(second.sharing!.lost).toEqual([]);
      expect([replicas.wrong(0), replicas.wrong(1)]).toEqual([[], []]);
      replicas.release();
    });

    it('tells its siblings if it fails, and fails as it would alone', async () => {
      const broken = join(folder, 'broken.bin');
      const source = tensors.get('table')!;
      if (source.kind !== 'file') throw new Error('not a file');
      copyFileSync(source.file, broken);
      truncateSync(broken, 100);
      const plan = planWeights(
        weights,
        constants,
        new Map([...tensors].map(([name, tensor]) => [name, tensor === source ? { ...source, file: broken } : tensor])),
        { isMapping: false },
      );
      const parts = partWeights(whole, 2);
      const at = parts.findIndex(({ plan: { weights: ours } }) => ours.some(({ names }) => names.includes('w_table')));
      const replicas = new Replicas([0, 1].map((index) => (index === at ? { plan } : {})));
      const [failed, other] = await Promise.allSettled([replicas.load(at), replicas.load(1 - at)]);
      expect(failed).toMatchObject({
        status: 'rejected',
        reason: expect.objectContaining({
          name: 'UserError',
          message: expect.stringMatching(/cut off/) as string,
        }) as Error,
      });
      expect(other).toMatchObject({
        status: 'fulfilled',
        value: { sharing: { lost: [{ sibling: at, reason: 'it failed' }] } },
      });
      expect(replicas.wrong(1 - at)).toEqual([]);
      replicas.release();
    });
  });
