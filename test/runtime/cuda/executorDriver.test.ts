/** The CUDA executor over the real addon and the fake driver: what the fake addon cannot show. */
import { expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { isCudaError } from '../../../runtime/cuda/addon.js';
import { OutOfDeviceMemory, peakBytes } from '../../../runtime/cuda/memoryUse.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, PACK_PTX } from './packShim.js';
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
  type TensorChange,
} from './tinyCuda.js';
import { openCuda, type CudaScoring, type CudaScoringOptions } from '../../support/scoring.js';

describeFake('CudaScoring on the fake driver', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  fake.host(buildTinyLibrary(folder));
  const plan = tinyCudaPlan();
  const kernels = plan.buckets.map(() => tinyKernels(plan));
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
  const cubins = new Map(
    kernels[0]!.map(({ symbol, tensorMaps }) => [
      symbol,
      encode(entryText(symbol, TINY_KERNELS[symbol as keyof typeof TINY_KERNELS], tensorMaps.length)),
    ]),
  );
  const packCubin = encode(PACK_PTX);

  const create = (change: Partial<CudaScoringOptions> = {}): Promise<CudaScoring> =>
    openCuda({
      plan,
      kernels,
      cubins,
      packCubin,
      tensors: writeTensors(folder),
      ordinals: [0],
      addon: fake.addon,
      ...change,
    });

  async function check(
    executor: CudaScoring,
    tokens: number,
    rows: number,
    seed = 1,
    change: TensorChange = {},
  ): Promise<void> {
    const batch = batchOf(tokens, rows, seed);
    const { logProb, isArgmax } = await executor.score(batch);
    expect({ logProb: [...logProb], isArgmax: [...isArgmax] }).toEqual(expectedScores(batch, change));
  }

  it('scores as computed by hand, alone and many at once', async () => {
    const executor = await create();
    for (const [tokens, rows] of [
      [1, 1],
      [16, 4],
      [17, 4],
      [16, 5],
      [64, 16],
    ] as const)
      await check(executor, tokens, rows);
    await Promise.all(Array.from({ length: 20 }, (_, i) => check(executor, 5 + i, 1 + (i % 5), i)));
    await executor.close();
    expect(fake.live()).toBe(0);
  });

  it('times launches, and finds the first value that is not finite', async () => {
    const table = (row: number, column: number): number => (row === 7 && column === 3 ? NaN : tableValue(row, column));
    const executor = await create({ tensors: writeTensors(folder, { table }) });
    const { launches } = await executor.profile(batchOf(10, 3));
    expect(launches.map(({ path }) => path)).toEqual(['embed', 'head.logprob', 'head.reduce']);
    for (const { nanoseconds } of launches) expect(nanoseconds).toBeGreaterThan(0);
    const batch = batchOf(12, 4);
    batch.tokens.fill(1);
    batch.tokens[9] = 7;
    await expect(executor.score(batch)).rejects.toMatchObject({ name: 'NonFiniteError', where: 'embed', rows: [1] });
    expect(await executor.diagnose(batch)).toEqual({ path: 'embed', buffer: 'h', row: 9, column: 3 });
    await executor.close();
    expect(fake.live()).toBe(0);
  });

  it('takes no more memory than it announced', async () => {
    let announced = 0;
    let executor = await create({
      onMemory: (use) => {
        announced = peakBytes(use);
      },
    });
    await executor.close();
    const reserve = 128 << 20;
    fake.set('totalBytes', announced + reserve);
    executor = await create();
    await check(executor, 30, 9);
    await executor.close();
    fake.set('totalBytes', announced + reserve - 1);
    await expect(create()).rejects.toThrow(UserError);
    fake.reset();
    expect(fake.live()).toBe(0);
  });

  it('survives and reports a lack of memory during a run', async () => {
    const executor = await create();
    fake.fail('cuLaunchKernelEx', CODES.outOfMemory);
    await expect(executor.score(batchOf(40, 3))).rejects.toBeInstanceOf(OutOfDeviceMemory);
    fake.reset();
    await check(executor, 20, 3);
    await executor.close();
    expect(fake.live()).toBe(0);
  });

  it('releases what it can if the device is lost while loading or scoring', async () => {
    const executor = await create();
    fake.fail('cuLaunchKernelEx', CODES.illegalAddress);
    const lost: unknown = await executor.score(batchOf(40, 3)).catch((error: unknown) => error);
    expect(isCudaError(lost) && lost.isContextDead).toBe(true);
    await executor.close();
    for (const call of [
      'cuLaunchKernelEx',
      'cuMemcpyHtoDAsync_v2',
      'cuMemAlloc_v2',
      'cuModuleLoadDataEx',
      'cuMemHostAlloc',
      'cuStreamSynchronize',
    ]) {
      fake.reset();
      fake.fail(call, CODES.illegalAddress);
      const error: unknown = await create().catch((reason: unknown) => reason);
      expect(isCudaError(error) && error.isContextDead, call).toBe(true);
    }
    fake.reset();
  });
});
