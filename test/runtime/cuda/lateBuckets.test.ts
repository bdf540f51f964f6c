/**
 * The CUDA executor while some of its kernels are still being compiled, on one device and as a pipeline of the fake
 * driver. The small bucket and the large one have kernels of their own, so that the driver's log tells which ran.
 */
import { beforeEach, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { SCORE } from '../../../ir/function.js';
import type { Stage } from '../../../ir/plan.js';
import { type Cubins, ExpectedCubins } from '../../../runtime/cuda/compileQueue.js';
import { type CudaMemoryUse, peakBytes } from '../../../runtime/cuda/memoryUse.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { type CudaScoring, type CudaScoringOptions, openCuda } from '../../support/scoring.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, hasCxx, PACK_PTX } from './packShim.js';
import { entryText } from './ptxEntry.js';
import {
  batchOf,
  buildTinyLibrary,
  expectedScores,
  TINY_KERNELS,
  tinyCudaPlan,
  tinyKernels,
  writeTensors,
} from './tinyCuda.js';

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const KINDS = ['_small', ''] as const;
const NAMES = Object.keys(TINY_KERNELS) as (keyof typeof TINY_KERNELS)[];
const SMALL = NAMES.map((name) => `${name}_small`);
const plan = tinyCudaPlan();
const kernels = KINDS.map((kind) => tinyKernels(plan, kind));
const images = new Map(
  kernels
    .flat()
    .map(({ symbol, tensorMaps }) => [
      symbol,
      encode(
        entryText(symbol, TINY_KERNELS[symbol.replace(/_small$/, '') as keyof typeof TINY_KERNELS], tensorMaps.length),
      ),
    ]),
);

/** A compiler that compiles what it is told to, when it is told to. */
class Compiler implements Cubins {
  readonly preferred: string[][] = [];
  readonly events: string[] = [];
  private readonly expected = new ExpectedCubins([...images.keys(), 'pack']);

  finish(...symbols: readonly string[]): void {
    for (const symbol of symbols) this.expected.resolve(symbol, images.get(symbol) ?? encode(PACK_PTX));
  }

  fail(symbol: string, error: Error): void {
    this.expected.reject(symbol, error);
  }

  known(symbol: string): Uint8Array | undefined {
    return this.expected.at(symbol);
  }

  get(symbol: string): Promise<Uint8Array> {
    return this.expected.get(symbol);
  }

  prefer(symbols: Iterable<string>): void {
    this.preferred.push([...symbols].sort());
  }

  lower(): void {
    this.events.push('lower');
  }

  stop(): Promise<void> {
    this.events.push('stop');
    this.expected.end(new Error('stopped'));
    return Promise.resolve();
  }
}

const stagesOf = (...ends: readonly number[]): readonly Stage[] =>
  ends.map((end, i) => ({ first: ends[i - 1] ?? 0, end }));

if (hasCxx())
  describeFake('an executor whose kernels come late', (fake) => {
    const folder = temporaryFolder();
    fake.host(buildPackShim(folder).library);
    fake.host(buildTinyLibrary(folder));
    let compiler: Compiler;
    beforeEach(() => {
      fake.reset();
      fake.set('devices', 2);
      compiler = new Compiler();
    });

    const open = (change: Partial<CudaScoringOptions> = {}): Promise<CudaScoring> =>
      openCuda({
        plan,
        kernels,
        cubins: compiler,
        packCubin: compiler.get('pack'),
        tensors: writeTensors(folder),
        ordinals: (change.stages ?? [0]).map((_, i) => i),
        addon: fake.addon,
        background: { pauseMs: 0, compileAfterMs: 0 },
        ...change,
      });
    const opened = async (change: Partial<CudaScoringOptions> = {}): Promise<CudaScoring> => {
      compiler.finish('pack', ...NAMES);
      return open(change);
    };
    const check = async (executor: CudaScoring, tokens: number): Promise<void> => {
      const batch = batchOf(tokens, 2);
      const { logProb, isArgmax } = await executor.score(batch);
      expect({ logProb: [...logProb], isArgmax: [...isArgmax] }).toEqual(expectedScores(batch));
    };
    /** Which kernels ran since the last reset, of each kind. */
    const launched = (): { small: number; large: number } => {
      const lines = fake.log('launch k_');
      const small = lines.filter((line) => line.includes('_small')).length;
      return { small, large: lines.length - small };
    };
    const hasLoaded = (symbol: string): boolean => fake.log('load').includes(`load ${symbol}`);
    const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

    const WAYS = [
      ['one device', {}],
      ['a pipeline', { stages: stagesOf(1, 3) }],
    ] as const;
    it('compiles nothing for nobody before the first answers, nor where it is closed first', async () => {
      compiler.finish('pack', ...NAMES);
      const executor = await open({ background: { pauseMs: 1, compileAfterMs: 60_000 } });
      await settled();
      expect(compiler.events).not.toContain('lower');
      await check(executor, 2);
      await executor.close();
      expect(compiler.events).toEqual(['stop']);
    });

    it.each(WAYS)('on %s opens with the largest bucket, which runs small calls too', async (_, change) => {
      const executor = await opened(change);
      expect(compiler.events).toEqual(['lower']);
      await check(executor, 5);
      expect(launched()).toEqual({ small: 0, large: 3 });
      compiler.finish(...SMALL);
      await expect.poll(() => SMALL.every(hasLoaded)).toBe(true);
      await executor.executor.prepare();
      await check(executor, 5);
      await check(executor, 40);
      expect(launched()).toEqual({ small: 3, large: 6 });
      await executor.close();
      expect(compiler.events).toEqual(['lower', 'stop']);
      expect(fake.live()).toBe(0);
    });

    it('streams weights before any other kernel is there', async () => {
      let loaded = 0;
      const job = open({ onLoaded: () => loaded++ });
      await settled();
      expect(loaded).toBe(0);
      compiler.finish('pack');
      await expect.poll(() => loaded).toBe(1);
      compiler.finish(...NAMES);
      await (await job).close();
      expect(fake.live()).toBe(0);
    });

    it.each(WAYS)('on %s opens with the bucket of the first call, and others wait for theirs', async (_, change) => {
      compiler.finish('pack', ...SMALL, ...('stages' in change ? NAMES : []));
      const first = [{ function: SCORE, extents: { T: 3, R: 1 } }];
      const executor = await open({ ...change, first });
      const small = check(executor, 5);
      const large = check(executor, 17);
      const later = check(executor, 6);
      if (!('stages' in change)) {
        await small;
        await settled();
        expect(launched()).toEqual({ small: 3, large: 0 });
        expect(compiler.preferred.at(-1)).toEqual([...NAMES].sort());
        compiler.finish(...NAMES);
      }
      await Promise.all([small, large, later]);
      expect(launched()).toEqual({ small: 6, large: 3 });
      await executor.close();
      expect(fake.live()).toBe(0);
    });

    it('takes the largest bucket where the first call is larger than the plan allows', async () => {
      compiler.finish('pack', ...NAMES);
      const executor = await open({ first: [{ function: SCORE, extents: { T: 1000, R: 500 } }] });
      await check(executor, 4);
      await executor.close();
    });

    it('waits for the bucket that is measured, also with the search for values that are not finite', async () => {
      for (const kind of ['profile', 'diagnose'] as const) {
        compiler = new Compiler();
        fake.reset();
        const executor = await opened();
        const job = executor[kind](batchOf(5, 2));
        await settled();
        expect(launched()).toEqual({ small: 0, large: 0 });
        compiler.finish(...SMALL);
        await job;
        expect(launched()).toEqual({ small: 3, large: 0 });
        await executor.close();
      }
    });

    it.each(WAYS)('on %s reports a kernel that does not compile as the error of the next call', async (_, change) => {
      const unseen: Error[] = [];
      const executor = await opened({ ...change, onUnseen: (error) => unseen.push(error) });
      await check(executor, 5);
      compiler.fail(SMALL[1]!, new UserError('NVRTC does not compile k_head_small', 'another compiler'));
      await settled();
      await expect(executor.score(batchOf(40, 2))).rejects.toThrow('does not compile k_head_small');
      await expect(executor.score(batchOf(4, 2))).rejects.toThrow(UserError);
      await executor.close();
      expect(unseen).toEqual([]);
      expect(fake.live()).toBe(0);
    });

    it('tells when it is closed what failed and no call was told', async () => {
      const unseen: Error[] = [];
      const executor = await opened({ onUnseen: (error) => unseen.push(error) });
      compiler.fail(SMALL[0]!, new Error('no registers left'));
      await settled();
      await executor.close();
      expect(unseen.map(({ message }) => message)).toEqual(['no registers left']);
      expect(fake.live()).toBe(0);
    });

    it('is the error of the call that waits', async () => {
      const executor = await opened();
      const job = executor.profile(batchOf(5, 2));
      const told = expect(job).rejects.toThrow('out of range');
      await settled();
      compiler.fail(SMALL[2]!, new Error('out of range'));
      await told;
      await executor.close();
    });

    it.each(WAYS)('on %s closes while kernels are compiled, and nobody waits for them', async (_, change) => {
      const executor = await opened(change);
      const refused = expect(executor.profile(batchOf(5, 2))).rejects.toThrow('closed');
      await settled();
      await executor.close();
      await refused;
      expect(compiler.events).toEqual(['lower', 'stop']);
      expect(fake.live()).toBe(0);
      await expect(executor.score(batchOf(5, 2))).rejects.toThrow('closed');
    });

    it.each(WAYS)('on %s is not opened where a kernel of the first bucket does not compile', async (_, change) => {
      compiler.finish('pack', NAMES[0]!);
      const job = open(change);
      const refused = expect(job).rejects.toThrow('k_head of the wrong kind');
      await settled();
      compiler.fail('k_head', new Error('k_head of the wrong kind'));
      await refused;
      expect(compiler.events).toContain('stop');
      expect(fake.live()).toBe(0);
    });

    it('stops compilers where the weights cannot be loaded', async () => {
      compiler.finish('pack');
      const tensors = writeTensors(folder);
      tensors.delete('norm');
      await expect(open({ tensors })).rejects.toThrow('no tensor norm');
      expect(compiler.events).toContain('stop');
      expect(fake.live()).toBe(0);
    });

    it('takes nothing more onto the device once loading has failed', async () => {
      compiler.finish('pack', ...NAMES);
      // Two buckets are waited for, and the weights fail first.
      fake.fail('cuMemcpyHtoDAsync_v2', 700, 1);
      const first = [
        { function: SCORE, extents: { T: 3, R: 1 } },
        { function: SCORE, extents: { T: 40, R: 1 } },
      ];
      await expect(open({ first })).rejects.toThrow('cuMemcpyHtoDAsync_v2');
      fake.reset();
      compiler.finish(...SMALL);
      await settled();
      expect(fake.live()).toBe(0);
    });

    it('counts kernels that are still being compiled among the memory', async () => {
      const uses: CudaMemoryUse[] = [];
      const early = await opened({ onMemory: (use) => uses.push(use) });
      await early.close();
      compiler = new Compiler();
      compiler.finish(...SMALL);
      await (await opened({ onMemory: (use) => uses.push(use) })).close();
      const [unknown, known] = uses as [CudaMemoryUse, CudaMemoryUse];
      const bytes = SMALL.reduce((sum, symbol) => sum + images.get(symbol)!.length, 0);
      expect(unknown.codeBytes - known.codeBytes).toBe(SMALL.length * (512 << 10) - bytes);
      expect(peakBytes(unknown)).toBeGreaterThan(peakBytes(known));
    });
  });
