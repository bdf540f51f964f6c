/**
 * The CUDA executor on several devices of the fake driver, over the real addon. The driver's streams execute either as
 * late as they may or in random relative orders, so a missing wait causes a wrong score.
 */
import { expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import type { Stage } from '../../../ir/plan.js';
import { isCudaError } from '../../../runtime/cuda/addon.js';
import { type CudaMemoryUse, OutOfDeviceMemory } from '../../../runtime/cuda/memoryUse.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { type CudaScoring, type CudaScoringOptions, openCuda } from '../../support/scoring.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, hasCxx, PACK_PTX } from './packShim.js';
import { entryText } from './ptxEntry.js';
import {
  batchOf,
  buildTinyLibrary,
  expectedScores,
  tableValue,
  TINY_KERNELS,
  tinyCudaPlan,
  tinyKernels,
  writeTensors,
} from './tinyCuda.js';
import { isThorough } from '../../support/thorough.js';

const stagesOf = (...ends: readonly number[]): readonly Stage[] =>
  ends.map((end, i) => ({ first: ends[i - 1] ?? 0, end }));
const CUTS = [stagesOf(3), stagesOf(1, 3), stagesOf(2, 3), stagesOf(1, 2, 3)];
const several = CUTS.slice(1);

if (hasCxx())
  describeFake('CudaScoring on several devices of the fake driver', (fake) => {
    const folder = temporaryFolder();
    fake.host(buildPackShim(folder).library);
    fake.host(buildTinyLibrary(folder));
    const spacious = tinyCudaPlan();
    // As planMemory would place them: dead buffers make room. The second launch's results overlap the first's inputs,
    // the third's overlap the first's results.
    const onto: Readonly<Record<string, string>> = { parts: 'tokens', log_prob: 'h', is_argmax: 'position' };
    const offsetOf = (name: string): number => spacious.placements.find(({ buffer }) => buffer === name)!.offset;
    const plan = {
      ...spacious,
      placements: spacious.placements.map((place) =>
        place.buffer in onto ? { ...place, offset: offsetOf(onto[place.buffer]!) } : place,
      ),
    };
    const kernels = plan.buckets.map(() => tinyKernels(plan));
    const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
    const cubins = new Map(
      kernels[0]!.map(({ symbol, tensorMaps }) => [
        symbol,
        encode(entryText(symbol, TINY_KERNELS[symbol as keyof typeof TINY_KERNELS], tensorMaps.length)),
      ]),
    );
    const packCubin = encode(PACK_PTX);

    /** The fake driver with this many devices. */
    const restart = (
      settings: Readonly<Partial<Record<'order' | 'peers' | 'totalBytes' | 'failDevice', number>>> = {},
    ): void => {
      fake.reset();
      fake.set('devices', 4);
      for (const [what, value] of Object.entries(settings)) fake.set(what as keyof typeof settings, value);
    };
    const create = (stages: readonly Stage[], change: Partial<CudaScoringOptions> = {}): Promise<CudaScoring> =>
      openCuda({
        plan,
        kernels,
        cubins,
        packCubin,
        tensors: writeTensors(folder),
        ordinals: stages.map((_, i) => i),
        stages,
        addon: fake.addon,
        ...change,
      });

    async function check(executor: CudaScoring, tokens: number, rows: number, seed: number): Promise<void> {
      const batch = batchOf(tokens, rows, seed);
      const { logProb, isArgmax } = await executor.score(batch);
      expect({ logProb: [...logProb], isArgmax: [...isArgmax] }).toEqual(expectedScores(batch));
    }
    const checkMany = (executor: CudaScoring, count: number): Promise<unknown> =>
      Promise.all(Array.from({ length: count }, (_, i) => check(executor, 5 + ((i * 29) % 60), 1 + (i % 5), i)));

    const ROUTES = CUTS.flatMap((stages) =>
      (['peer', 'host', 'local'] as const).map((route) => [stages.length, stages[0]!.end, route, stages] as const),
    );
    it.each(ROUTES.filter((_, i) => isThorough || i % 4 === 3))(
      'scores as computed by hand: %i stages, the first of %i launches, with copies by %s',
      async (_count, _end, route, stages) => {
        for (let order = 0; order < 12; order++) {
          // Odd orders are told to copy through the host, although the devices can reach each other.
          restart({ order, peers: route === 'host' && order % 2 === 0 ? 0 : 1 });
          const routes: string[] = [];
          const executor = await create(stages, {
            ...(route === 'local' ? { ordinals: stages.map(() => 1) } : {}),
            ...(route === 'host' && order % 2 === 1 ? { usesPeers: false } : {}),
            onRoutes: (found) => routes.push(...found),
          });
          expect(routes).toEqual(stages.slice(1).map(() => route));
          expect(executor.inFlight).toBe(stages.length * 2);
          await checkMany(executor, 24);
          await executor.close();
          expect(fake.live()).toBe(0);
        }
      },
    );

    it('reports what every device did and when, its launches in sequence', async () => {
      for (const peers of [1, 0]) {
        restart({ peers });
        const executor = await create(stagesOf(1, 2, 3));
        const began = Date.now();
        const scored = await Promise.all(Array.from({ length: 6 }, (_, i) => executor.score(batchOf(20, 4, i))));
        for (let device = 0; device < 3; device++) {
          const spans = scored.map(({ spans: all }) => all!.filter((span) => span.device === device));
          const computing = spans.map((all) => all.filter(({ kind }) => kind === 'compute'));
          expect(computing.map((all) => all.length)).toEqual([1, 1, 1, 1, 1, 1]);
          computing.flat().forEach(({ begin, end }, i) => {
            expect(end).toBeGreaterThan(begin);
            if (i > 0) expect(begin).toBeGreaterThanOrEqual(computing.flat()[i - 1]!.end - 1e-6);
          });
          // With copies through the host, the middle one receives and sends.
          const copies = peers === 1 ? [1, 1, 0][device]! : [1, 2, 1][device]!;
          expect(spans.map((all) => all.filter(({ kind }) => kind === 'copy').length)).toEqual(
            Array.from({ length: 6 }, () => copies),
          );
        }
        // Times are those of the calendar.
        expect(scored[0]!.spans![0]!.begin).toBeGreaterThan(began - 60_000);
        expect(scored[0]!.spans![0]!.begin).toBeLessThan(Date.now() + 60_000);
        await executor.close();
      }
      restart();
      const alone = await create(stagesOf(3));
      const { spans } = await alone.score(batchOf(20, 4));
      expect(spans).toHaveLength(1);
      expect(spans![0]).toMatchObject({ device: 0, kind: 'compute' });
      await alone.close();
    });

    it("sends a micro-batch's own rows, from device to device, and nothing else", async () => {
      restart();
      const executor = await create(stagesOf(1, 2, 3));
      fake.reset();
      await executor.score(batchOf(20, 4));
      const strides = ['h', 'parts'].map((name) =>
        plan.buffers.find((buffer) => buffer.name === name)!.columns === 'T' ? NaN : 32,
      );
      expect(fake.log('peer')).toEqual([`peer 0 to 1 ${20 * strides[0]! * 4}`, `peer 1 to 2 ${4 * strides[1]! * 4}`]);
      expect(fake.log('download')).toHaveLength(2);
      expect(fake.log('sync')).toEqual([]);
      await executor.close();
    });

    it.each(several.map((stages) => [stages.length, stages] as const))(
      'measures every launch, and names where a value became NaN, on %i devices',
      async (_, stages) => {
        for (const order of [0, 1, 2]) {
          restart({ order });
          const table = (row: number, column: number): number =>
            row === 7 && column === 3 ? NaN : tableValue(row, column);
          const executor = await create(stages, { tensors: writeTensors(folder, { table }) });
          const { launches } = await executor.profile(batchOf(10, 3));
          expect(launches.map(({ path }) => path)).toEqual(['embed', 'head.logprob', 'head.reduce']);
          for (const { nanoseconds } of launches) expect(nanoseconds).toBeGreaterThan(0);
          const batch = batchOf(12, 4);
          batch.tokens.fill(1);
          batch.tokens[9] = 7;
          const good = batchOf(9, 2);
          good.tokens.fill(1);
          good.target.fill(2);
          const [bad, ...others] = await Promise.allSettled([
            executor.score(batch),
            ...Array.from({ length: 5 }, () => executor.score(good)),
          ]);
          expect(bad).toMatchObject({
            status: 'rejected',
            reason: { name: 'NonFiniteError', where: 'embed', rows: [1] },
          });
          expect(others.map(({ status }) => status)).toEqual(Array.from({ length: 5 }, () => 'fulfilled'));
          expect(await executor.diagnose(batch)).toEqual({ path: 'embed', buffer: 'h', row: 9, column: 3 });
          expect(await executor.diagnose(good)).toBeUndefined();
          await executor.close();
          expect(fake.live()).toBe(0);
        }
      },
    );

    it('gives each device its own weights, twice the activations, and refuses a device that is too small', async () => {
      restart();
      const uses: CudaMemoryUse[] = [];
      await (await create(stagesOf(1, 2, 3), { onMemory: (use) => uses.push(use) })).close();
      expect(uses.map(({ arenaBytes }) => arenaBytes)).toEqual([1, 2, 3].map(() => 2 * plan.arenaBytes));
      const whole: CudaMemoryUse[] = [];
      await (await create(stagesOf(3), { onMemory: (use) => whole.push(use) })).close();
      expect(uses.reduce((sum, { weightBytes }) => sum + weightBytes, 0)).toBe(whole[0]!.weightBytes);
      restart({ totalBytes: (128 << 20) + 1000 });
      await expect(create(stagesOf(1, 2, 3))).rejects.toThrow(UserError);
      expect(fake.live()).toBe(0);
    });

    it('loads nothing if one device has too little memory, and names it', async () => {
      restart({ failDevice: 1 });
      fake.fail('cuMemAlloc_v2', CODES.outOfMemory);
      const error: unknown = await create(stagesOf(1, 2, 3)).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(UserError);
      expect((error as UserError).message).toMatch(/Fake H101/);
      expect(fake.live()).toBe(0);
    });

    it("continues after one device lacks memory, with the others' micro-batches unharmed", async () => {
      for (const order of [0, 1, 2, 3]) {
        restart({ order });
        const executor = await create(stagesOf(1, 2, 3));
        await checkMany(executor, 3);
        fake.set('failDevice', 1);
        fake.fail('cuLaunchKernelEx', CODES.outOfMemory, 3);
        const answers = await Promise.allSettled(Array.from({ length: 6 }, (_, i) => check(executor, 20, 3, i)));
        const failed = answers.flatMap((answer) => (answer.status === 'rejected' ? [answer.reason] : []));
        expect(answers.slice(0, 2).map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
        expect(failed).toHaveLength(4);
        for (const reason of failed) expect(reason).toBeInstanceOf(OutOfDeviceMemory);
        restart({ order });
        await checkMany(executor, 12);
        await executor.close();
        expect(fake.live()).toBe(0);
      }
    });

    it('fails, and releases everything, if a device is lost', async () => {
      for (const call of ['cuLaunchKernelEx', 'cuMemcpyPeerAsync', 'cuEventSynchronize', 'cuStreamWaitEvent']) {
        restart();
        const executor = await create(stagesOf(1, 2, 3));
        fake.fail(call, CODES.illegalAddress);
        const answers = await Promise.allSettled(
          Array.from({ length: 5 }, (_, i) => executor.score(batchOf(20, 4, i))),
        );
        for (const answer of answers)
          expect(answer.status === 'rejected' && isCudaError(answer.reason) && answer.reason.isContextDead, call).toBe(
            true,
          );
        await executor.close();
        expect(fake.live(), call).toBe(0);
      }
    });

    it('refuses stages that are not those of the plan', async () => {
      restart();
      await expect(create(stagesOf(1, 2))).rejects.toThrow(/not the 3 launches/);
      await expect(
        create([
          { first: 0, end: 1 },
          { first: 2, end: 3 },
        ]),
      ).rejects.toThrow(/in order/);
      await expect(create(stagesOf(1, 3), { ordinals: [0] })).rejects.toThrow(/2 stages on 1 devices/);
      expect(fake.live()).toBe(0);
    });
  });
