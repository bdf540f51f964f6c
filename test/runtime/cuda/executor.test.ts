/** The CUDA executor over a fake of the addon: loading, buckets, two micro-batches at once, NaN, memory, bad input. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { tokensIn } from '../../../ir/scoring.js';
import { NonFiniteError } from '../../../runtime/call.js';
import {
  type CudaMemoryUse,
  OutOfDeviceMemory,
  peakBytes,
  printCudaMemoryUse,
  requireDeviceMemory,
} from '../../../runtime/cuda/memoryUse.js';
import { JOB_BYTES } from '../../../runtime/cuda/packJob.js';
import type { LoadProgress } from '../../../runtime/files.js';
import type { TensorSource } from '../../../runtime/tensorSource.js';
import { extentsTR } from '../../support/interface.js';
import { type Batch, type CudaScoring, type CudaScoringOptions, openCuda } from '../../support/scoring.js';
import { temporaryFolder } from '../kernels.js';
import { randomValue, roundTo } from '../packReference.js';
import { fakeCuda, type FakeKernel, type FakeOptions, type FakeState, outOfMemory } from './fakeCudaAddon.js';
import { buildPackShim, hasCxx } from './packShim.js';
import {
  batchOf,
  buildTinyKernels,
  expectedScores,
  tableValue,
  type TensorChange,
  tinyCudaPlan,
  tinyKernels,
  VOCAB,
  WIDTH,
  writeTensors,
} from './tinyCuda.js';

const isPossible = hasCxx();
if (!isPossible) process.stderr.write('SKIPPED: the CUDA executor over a fake device: no g++ on PATH\n');

describe.skipIf(!isPossible)('CudaExecutor', () => {
  const folder = temporaryFolder();
  const plan = tinyCudaPlan();
  const shim = buildPackShim(folder);
  const tiny = buildTinyKernels(folder);
  const packModule = Object.fromEntries(
    ['tw_pack_rows', 'tw_pack_find'].map((symbol): [string, FakeKernel] => [
      symbol,
      (launch, sizes, pointers) => shim.run(symbol, launch, sizes, pointers),
    ]),
  );
  const kernels = plan.buckets.map(() => tinyKernels(plan));
  const cubins = new Map(kernels[0]!.map(({ symbol }) => [symbol, new TextEncoder().encode('tiny')]));

  const makeFake = (options: Omit<FakeOptions, 'modules'> = {}): ReturnType<typeof fakeCuda> =>
    fakeCuda({ ...options, modules: { tiny, pack: packModule } });

  const optionsFor = (fake: ReturnType<typeof fakeCuda>): CudaScoringOptions => ({
    plan,
    kernels,
    cubins,
    packCubin: new TextEncoder().encode('pack'),
    tensors: writeTensors(folder),
    ordinals: [0],
    addon: fake.addon,
  });

  async function create(
    change: Partial<CudaScoringOptions> = {},
    options: Omit<FakeOptions, 'modules'> = {},
  ): Promise<{ executor: CudaScoring; state: FakeState }> {
    const fake = makeFake(options);
    return { executor: await openCuda({ ...optionsFor(fake), ...change }), state: fake.state };
  }

  /** Closes it and checks that nothing of it is left on the device. */
  async function close(executor: CudaScoring, state: FakeState): Promise<void> {
    await executor.close();
    expect([state.live, state.liveBytes]).toEqual([0, 0]);
  }

  async function check(executor: CudaScoring, batch: Batch, change: TensorChange = {}): Promise<void> {
    const { logProb, isArgmax } = await executor.score(batch);
    const wanted = expectedScores(batch, change);
    expect([...logProb]).toEqual(wanted.logProb);
    expect([...isArgmax]).toEqual(wanted.isArgmax);
  }

  it('scores as computed by hand, in every bucket', async () => {
    const { executor, state } = await create();
    for (const [tokens, rows] of [
      [1, 1],
      [16, 4],
      [17, 4],
      [16, 5],
      [64, 16],
      [3, 0],
    ] as const)
      await check(executor, batchOf(tokens, rows));
    await close(executor, state);
  });

  it('has two micro-batches on the device at a time, however many are requested', async () => {
    const { executor, state } = await create({}, { delay: 3 });
    await Promise.all(Array.from({ length: 20 }, (_, i) => check(executor, batchOf(5 + i, 1 + (i % 5), i))));
    expect(state.maxInFlight).toBe(2);
    await close(executor, state);
  });

  it('finishes requested work before it closes', async () => {
    const { executor, state } = await create({}, { delay: 3 });
    const asked = [3, 9, 30, 40].map((tokens) => check(executor, batchOf(tokens, 2)));
    await executor.close();
    expect([state.live, state.liveBytes]).toEqual([0, 0]);
    await Promise.all(asked);
    await expect(executor.score(batchOf(1, 1))).rejects.toThrow(/closed/);
    await executor.close();
  });

  it('generates random and constant weights', async () => {
    const tensors = new Map<string, TensorSource>([
      ['embed_tokens', { kind: 'random', format: 'bf16', shape: [VOCAB, WIDTH], seed: 42n, scale: 0.5 }],
      ['norm', { kind: 'constant', format: 'f32', shape: [WIDTH], value: 3 }],
    ]);
    const { executor, state } = await create({ tensors });
    await check(executor, batchOf(30, 9), {
      table: (row, column) => roundTo('bf16', randomValue(42n, row * WIDTH + column, 0.5)),
      norm: () => 3,
    });
    expect(state.maxCopies).toBe(0);
    await close(executor, state);
  });

  it('announces its memory in advance, never takes more, and reports progress in bytes', async () => {
    const progress: LoadProgress[] = [];
    const fake = makeFake();
    let announced: CudaMemoryUse | undefined;
    const executor = await openCuda({
      ...optionsFor(fake),
      onProgress: (step) => progress.push(step),
      onMemory: (use) => {
        announced = use;
        expect(fake.state.liveBytes).toBe(0);
      },
    });
    const use = executor.memory()[0]!;
    expect(announced).toEqual(use);
    // The table, both heads together, and the frequencies: one page each.
    expect(use.weightBytes).toBe(3 * 4096);
    expect(use.arenaBytes).toBe(plan.arenaBytes);
    // Three jobs and one vector of factors. The table, which is the head too, is in one staging buffer; the factors are
    // in another.
    expect(use.stagingBytes).toBe(3 * JOB_BYTES + 256 + 2 * 640);
    expect(fake.state.peakBytes).toBeGreaterThan(0);
    expect(fake.state.peakBytes).toBeLessThanOrEqual(peakBytes(use));
    const total = VOCAB * WIDTH * 2 + VOCAB * WIDTH * 2;
    expect(progress.at(-1)).toMatchObject({ doneBytes: total, totalBytes: total, weight: 'head_copy' });
    expect(printCudaMemoryUse({ ...use, weightBytes: 3 << 20 })).toMatch(/weights +3 MiB\n/);
    await close(executor, fake.state);
  });

  it('profiles every launch in the smallest bucket that fits', async () => {
    const { executor, state } = await create();
    const { bucket, launches } = await executor.profile(batchOf(10, 3));
    expect(tokensIn(bucket)).toBe(16);
    expect(launches).toEqual([
      { kernel: 'embed', path: 'embed', nanoseconds: 1e6 },
      { kernel: 'head', path: 'head.logprob', nanoseconds: 2e6 },
      { kernel: 'head_reduce', path: 'head.reduce', nanoseconds: 3e6 },
    ]);
    expect(tokensIn((await executor.profile(batchOf(10, 5))).bucket)).toBe(64);
    await close(executor, state);
  });

  it('names the first kernel whose result is not finite and the affected rows, and continues to work', async () => {
    const table = (row: number, column: number): number => (row === 7 && column === 3 ? NaN : tableValue(row, column));
    const { executor, state } = await create({ tensors: writeTensors(folder, { table }) });
    const batch = batchOf(12, 4);
    batch.tokens.fill(1);
    batch.tokens[9] = 7;
    const error: unknown = await executor.score(batch).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(NonFiniteError);
    expect(error).toMatchObject({ name: 'NonFiniteError', where: 'embed', rows: [1] });
    expect(await executor.diagnose(batch)).toEqual({ path: 'embed', buffer: 'h', row: 9, column: 3 });
    batch.tokens[9] = 2;
    batch.target.fill(0);
    await check(executor, batch, { table });
    expect(await executor.diagnose(batch)).toBeUndefined();
    await close(executor, state);
  });

  it('finds NaN that packing introduced, even if several callers ask at once', async () => {
    const { executor, state } = await create({ tensors: writeTensors(folder, { norm: () => Infinity }) }, { delay: 2 });
    const errors = await Promise.all(
      [4, 20, 9].map((tokens) => executor.score(batchOf(tokens, 2)).catch((reason: unknown) => reason)),
    );
    for (const error of errors) expect(error).toMatchObject({ where: 'head.logprob', rows: [0, 1] });
    await close(executor, state);
  });

  it('abandons a micro-batch for which memory ran out, and continues with a smaller one', async () => {
    const { executor, state } = await create();
    state.nextError = outOfMemory();
    const error: unknown = await executor.score(batchOf(40, 3)).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(OutOfDeviceMemory);
    expect(error).toMatchObject({
      name: 'OutOfDeviceMemory',
      message: 'The device ran out of memory in a call of 40 T, 3 R.',
    });
    await check(executor, batchOf(20, 3));
    state.nextError = new Error('something else');
    await expect(executor.score(batchOf(4, 1))).rejects.toThrow('something else');
    await close(executor, state);
  });

  it('refuses numbers that kernels would use as indices outside their arrays', async () => {
    const { executor, state } = await create({ maxLength: 20 });
    const wrong = [
      ['tokens', 3, VOCAB, 'tokens[3] = 40 lies outside 0 to 39'],
      ['subtreeEnd', 2, 11, 'subtreeEnd[2] = 11'],
      ['row', 0, 10, 'row[0] = 10'],
    ] as const;
    for (const [input, at, value, message] of wrong) {
      const batch = batchOf(10, 3);
      batch[input][at] = value;
      await expect(executor.score(batch)).rejects.toThrow(message);
    }
    await expect(executor.score({ ...batchOf(65, 1), position: new Int32Array(65) })).rejects.toThrow(
      /No bucket holds 65 T, 1 R/,
    );
    await expect(executor.score(batchOf(21, 1))).rejects.toThrow('position[20] = 20 lies outside 0 to 19');
    await expect(executor.diagnose(batchOf(21, 1))).rejects.toThrow('position[20]');
    await check(executor, batchOf(10, 3));
    await close(executor, state);
  });

  it('names a missing, misshapen or truncated tensor, and leaves nothing on the device', async () => {
    const change = async (
      name: string,
      source: Partial<Extract<TensorSource, { kind: 'file' }>> | undefined,
    ): Promise<UserError> => {
      const tensors = writeTensors(folder);
      const old = tensors.get(name);
      if (source === undefined) tensors.delete(name);
      else if (old?.kind === 'file') tensors.set(name, { ...old, ...source });
      const fake = makeFake();
      const error: unknown = await openCuda({ ...optionsFor(fake), tensors }).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(UserError);
      expect([fake.state.live, fake.state.liveBytes]).toEqual([0, 0]);
      return error as UserError;
    };
    expect((await change('norm', undefined)).message).toContain('no tensor norm');
    expect((await change('embed_tokens', { shape: [WIDTH, VOCAB] })).message).toContain(
      '[8, 40]; config.json asks for [40, 8]',
    );
    expect((await change('norm', { offset: 1e6 })).message).toContain('cut off');
    expect((await change('norm', { file: join(folder, 'missing.bin') })).message).toContain(
      'missing.bin: No such file',
    );
  });

  it('releases everything if loading or binding fails', async () => {
    const attempt = async (change: Partial<CudaScoringOptions>, nextError?: Error): Promise<string> => {
      const fake = makeFake({ delay: 1 });
      fake.state.nextError = nextError;
      const error: unknown = await openCuda({ ...optionsFor(fake), ...change }).catch((reason: unknown) => reason);
      expect([fake.state.live, fake.state.liveBytes]).toEqual([0, 0]);
      return String(error);
    };
    expect(await attempt({}, new Error('a broken bus'))).toContain('a broken bus');
    expect(await attempt({}, outOfMemory())).toMatch(/UserError: This plan needs .* [KM]iB of device memory/);
    expect(await attempt({ kernels: [] })).toContain('0 sets of kernels for 2 buckets of score');
    expect(await attempt({ kernels: kernels.map((texts) => texts.slice(1)) })).toContain('2 kernels for 3 launches');
    expect(await attempt({ cubins: new Map([...cubins].slice(1)) })).toContain('no machine code of k_embed');
    expect(
      await attempt({ kernels: kernels.map((texts) => texts.map((text) => ({ ...text, parameters: ['parts'] }))) }),
    ).toContain('k_embed takes parts; launch 0 (embed) gives tokens,');
    expect(
      await attempt({
        kernels: kernels.map((texts) =>
          texts.map((text) => ({ ...text, tensorMaps: text.tensorMaps.map((map) => ({ ...map, parameter: 9 })) })),
        ),
      }),
    ).toContain('tensor map of parameter 9');
    expect(
      await attempt({
        plan: {
          ...plan,
          placements: plan.placements.map((placement) => ({ ...placement, offset: placement.offset + 64 })),
        },
      }),
    ).toContain('no multiple of 256');
  });

  it('binds tensor maps to slots, and starts early only kernels that state that they wait', async () => {
    const { executor, state } = await create();
    const [first] = state.bindings.filter((binding) => binding.launches[0]?.name === 'embed');
    const head = first!.launches[1]!;
    expect(head.tensorMaps.map(({ slot }) => slot)).toEqual([head.slots[0], head.slots[3]]);
    expect(head.tensorMaps[0]).toMatchObject({ rows: 'T', columns: WIDTH, stride: 32, swizzle: 0 });
    expect(head.tensorMaps[1]).toMatchObject({ rows: 64, dtype: 'bf16' });
    expect(first!.launches.map(({ usesProgrammaticLaunch }) => usesProgrammaticLaunch)).toEqual([false, true, false]);
    // The largest bucket, which runs in place of any other, is bound first.
    expect(first!.extents).toEqual(extentsTR(64, 16));
    await close(executor, state);
  });
});

describe('device memory', () => {
  const GiB = 2 ** 30;
  const use: CudaMemoryUse = {
    weightBytes: 60 * GiB,
    arenaBytes: 8 * GiB,
    stateBytes: 0,
    stagingBytes: GiB / 4,
    codeBytes: 0,
  };
  const capacity = 8192;
  const failure = (freeGiB: number, change: Partial<CudaMemoryUse> = {}): UserError => {
    try {
      requireDeviceMemory(
        { ...use, ...change },
        { name: 'H100', freeBytes: freeGiB * GiB, totalBytes: 80 * GiB },
        capacity,
      );
    } catch (error) {
      if (error instanceof UserError) return error;
      throw error;
    }
    throw new Error('it fits');
  };

  it('fits if there is room for the peak and the driver', () => {
    requireDeviceMemory(use, { name: 'H100', freeBytes: 68.2 * GiB, totalBytes: 80 * GiB }, capacity);
    requireDeviceMemory(
      { ...use, arenaBytes: 0, stagingBytes: 8 * GiB },
      { name: 'H100', freeBytes: 68.2 * GiB, totalBytes: 80 * GiB },
      capacity,
    );
    expect(failure(68.1).message).toMatch(
      /^This plan needs 68 GiB of device memory.*H100 has 68.1 GiB of 80 GiB free\.\nweights/,
    );
  });

  it('says in one line what would fit', () => {
    // 3.875 GiB of room for activations that take slightly less than 1 MiB per token.
    expect(failure(64).hint).toBe('Compile it for smaller micro-batches: --batch-tokens 3840.');
    expect(failure(60.1).hint).toBe(
      'The weights alone take 60 GiB: spread over 2 or more such GPUs, or use one with more memory.',
    );
    expect(failure(25).hint).toMatch(/spread over 3 or more/);
    expect(failure(0.1).hint).toMatch(/Another process holds the memory/);
  });
});
