/** Programs on the fake driver: what is launched, copied and measured, in which order, and what is refused. */
import { afterAll, afterEach, beforeEach, expect, it } from 'vitest';
import type { GridExtent, LaunchShape } from '../../../ir/cuda.js';
import type {
  CudaDevice,
  CudaLaunchBinding,
  CudaMemory,
  CudaModule,
  CudaProgram,
  CudaProgramBinding,
  CudaTensorMapBinding,
} from '../../../runtime/cuda/native.js';
import { HOPPER_KERNELS, KERNELS } from '../../support/cudaKernels.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { extentsTR, vector } from '../../support/interface.js';

const tiles = (extent: 'T' | 'R', per: number, times = 1): GridExtent => ({ kind: 'tiles', extent, per, times });
const one: GridExtent = { kind: 'constant', count: 1 };
const shape = (more: Partial<LaunchShape> = {}): LaunchShape => ({
  threads: 128,
  sharedBytes: 0,
  cluster: 1,
  gridX: tiles('T', 128),
  gridY: one,
  ...more,
});

describeFake('programs', (fake) => {
  const cuda = fake.addon;
  const device: CudaDevice = new cuda.Device(0);
  const common: CudaModule = new cuda.Module(device, new TextEncoder().encode(KERNELS));
  const hopper: CudaModule = new cuda.Module(device, new TextEncoder().encode(HOPPER_KERNELS));
  const atRest = fake.live();
  let memory: CudaMemory;
  const programs: CudaProgram[] = [];
  beforeEach(() => {
    memory = new cuda.Memory(device, 1 << 16);
    memory.fill(0xab);
    device.synchronize();
  });
  afterEach(() => {
    fake.set('held', 0);
    fake.reset();
    memory.release();
    for (const program of programs.splice(0)) program.release();
    expect(fake.live()).toBe(atRest);
  });
  afterAll(() => {
    for (const held of [common, hopper, device]) held.release();
    expect(fake.live()).toBe(0);
  });

  const launch = (
    symbol: string,
    slots: readonly number[],
    more: Partial<CudaLaunchBinding> = {},
  ): CudaLaunchBinding => ({
    name: `model.${symbol}`,
    module: KERNELS.includes(` ${symbol}(`) ? common : hopper,
    symbol,
    slots,
    tensorMaps: [],
    launch: shape(),
    usesProgrammaticLaunch: false,
    ...more,
  });
  const bind = (binding: Partial<CudaProgramBinding> & Pick<CudaProgramBinding, 'launches'>): CudaProgram => {
    const slots = [0, 4096, 8192, 12288].map((offset) => ({ memory, offset, bytes: 4096 }));
    const program = new cuda.Program({
      device,
      extents: extentsTR(1000, 500),
      slots,
      inputs: [],
      outputs: [],
      ...binding,
    });
    programs.push(program);
    return program;
  };
  /** in (slot 0) → 2·in + 1 (slot 1) → that + 1 (slot 2); rows (slot 3) → −rows as f32 (slot 1, after its use). */
  const chain = (): CudaProgram =>
    bind({
      launches: [
        launch('tw_affine', [0, 1]),
        launch('tw_after', [1, 2], { usesProgrammaticLaunch: true }),
        launch('tw_rows', [3, 1], { launch: shape({ gridX: tiles('R', 128) }) }),
      ],
      inputs: [vector(0, 'T'), vector(3, 'R')],
      outputs: [vector(2, 'T', 'i32'), vector(1, 'R', 'f32')],
    });
  const iota = (length: number, from = 0): Int32Array => Int32Array.from({ length }, (_, i) => from + i);

  it('runs its launches on the inputs and returns the outputs', async () => {
    const { outputs, milliseconds, launchMilliseconds } = await chain().run({
      extents: [300, 40],
      inputs: [iota(300), iota(40)],
    });
    expect(new Int32Array(outputs[0]!)).toEqual(iota(300).map((i) => 2 * i + 2));
    expect(new Float32Array(outputs[1]!)).toEqual(Float32Array.from({ length: 40 }, (_, i) => -i));
    // The fake device's clock: 1 ms per launch, 1/8 ms per copy.
    expect(milliseconds).toBe(3.5);
    expect(launchMilliseconds).toBeUndefined();
    expect(fake.log('launch')).toEqual([
      'launch tw_affine grid=3,1,1 block=128 shared=0 cluster=1 programmatic=0 T=300 R=40',
      'launch tw_after grid=3,1,1 block=128 shared=0 cluster=1 programmatic=1 T=300 R=40',
      'launch tw_rows grid=1,1,1 block=128 shared=0 cluster=1 programmatic=0 T=300 R=40',
    ]);
    // Beyond the end of an input: zeros up to 128 bytes; the rest is untouched.
    expect([...new Int32Array(memory.read(1196, 12))]).toEqual([299, 0, 0]);
    expect([...new Uint8Array(memory.read(12288 + 500 * 4 + 48, 4))]).toEqual([0xab, 0xab, 0xab, 0xab]);
  });

  it('launches nothing if there are no rows', async () => {
    const { outputs } = await chain().run({ extents: [1, 0], inputs: [iota(1), iota(0)] });
    expect(outputs.map((buffer) => buffer.byteLength)).toEqual([4, 0]);
    expect(fake.log('launch')).toHaveLength(2);
  });

  it('measures each launch on request, and runs parts', async () => {
    const program = chain();
    const timed = await program.run({ extents: [10, 1], inputs: [iota(10), iota(1)], isTimed: true });
    expect(timed.launchMilliseconds).toEqual(new Float64Array([1, 1, 1]));
    expect(timed.milliseconds).toBe(3.5);
    await program.run({ extents: [10, 1], inputs: [iota(10, 7), iota(1)], launches: { first: 0, end: 1 } });
    expect(new Int32Array(memory.read(4096, 8))).toEqual(new Int32Array([15, 17]));
    // A later part copies no inputs again.
    const part = await program.run({
      extents: [10, 1],
      inputs: [iota(10), iota(1)],
      launches: { first: 1, end: 2 },
      isTimed: true,
    });
    expect(part.launchMilliseconds).toEqual(new Float64Array([1]));
    expect(new Int32Array(memory.read(8192, 8))).toEqual(new Int32Array([16, 18]));
    expect(new Int32Array(memory.read(0, 4))).toEqual(new Int32Array([7]));
    await expect(
      (async () => program.run({ extents: [10, 1], inputs: [iota(10), iota(1)], launches: { first: 2, end: 4 } }))(),
    ).rejects.toThrow(/from 0 to 3/);
  });

  it('has at most two runs in flight, in the order of the calls', async () => {
    const program = chain();
    fake.set('held', 1);
    const runs = [1, 2].map((k) => program.run({ extents: [3, k], inputs: [iota(3, 100 * k), iota(k, k)] }));
    expect(() => program.run({ extents: [3, 1], inputs: [iota(3), iota(1)] })).toThrow(
      /Two micro-batches .* in flight/,
    );
    await expect.poll(() => fake.log('launch').length).toBe(6);
    expect(fake.log('launch').map((line) => line.slice(-3))).toEqual(['R=1', 'R=1', 'R=1', 'R=2', 'R=2', 'R=2']);
    fake.set('held', 0);
    const results = await Promise.all(runs);
    expect(results.map(({ outputs }) => [...new Int32Array(outputs[0]!)])).toEqual([
      [202, 204, 206],
      [402, 404, 406],
    ]);
    expect(results.map(({ outputs }) => [...new Float32Array(outputs[1]!)])).toEqual([[-1], [-2, -3]]);
    await program.run({ extents: [3, 1], inputs: [iota(3), iota(1)] });
  });

  it('keeps the order of runs of several programs, reads and writes', async () => {
    const [a, b] = [chain(), bind({ launches: [launch('tw_affine', [2, 2])] })];
    const first = a.run({ extents: [2, 0], inputs: [iota(2), iota(0)] });
    const second = b.run({ extents: [2, 0], inputs: [] });
    const read = memory.readAsync(8192, 8);
    memory.write(8192, new Int32Array([-1, -1]));
    const last = new Int32Array(memory.read(8192, 8));
    expect([...last]).toEqual([-1, -1]);
    expect([...new Int32Array(await read)]).toEqual([5, 9]);
    await Promise.all([first, second]);
  });

  it('copies adjacent inputs as one', async () => {
    const slots = [
      { memory, offset: 256, bytes: 128 },
      { memory, offset: 0, bytes: 128 },
      { memory, offset: 4096, bytes: 128 },
    ];
    const program = bind({
      extents: extentsTR(32, 4),
      slots,
      launches: [],
      inputs: [0, 1, 2].map((slot) => vector(slot, 'T')),
    });
    fake.reset();
    await program.run({ extents: [2, 1], inputs: [iota(2, 10), iota(2, 20), iota(2, 30)] });
    expect(fake.log('upload')).toEqual(['upload 384', 'upload 128']);
    expect([...new Int32Array(memory.read(0, 16))]).toEqual([20, 21, 0, 0]);
    expect([...new Int32Array(memory.read(248, 20))]).toEqual([0, 0, 10, 11, 0]);
    expect([...new Int32Array(memory.read(384, 4))]).toEqual([-1414812757]);
    expect([...new Int32Array(memory.read(4096, 8))]).toEqual([30, 31]);
    const overlapping = [
      { memory, offset: 0, bytes: 128 },
      { memory, offset: 64, bytes: 128 },
    ];
    expect(() =>
      bind({
        extents: extentsTR(32, 4),
        slots: overlapping,
        launches: [],
        inputs: [0, 1].map((slot) => vector(slot, 'T')),
      }),
    ).toThrow(/share device memory/);
  });

  it('asks the driver for clusters that not every device has', async () => {
    const clusters = async (cluster: 8 | 16): Promise<readonly string[]> => {
      fake.reset();
      const grid = shape({ gridX: tiles('T', 64, 16), cluster });
      const program = bind({ launches: [launch('tw_cluster', [0], { launch: grid })] });
      await program.run({ extents: [129, 25], inputs: [] });
      return fake.log('launch');
    };
    expect((await clusters(8))[0]).toContain('cluster=8');
    expect((await clusters(16))[0]).toContain('cluster=16');
  });

  it('computes grids of all kinds for each micro-batch', async () => {
    const grid = (gridX: GridExtent, gridY: GridExtent = one, cluster: 1 | 2 = 1): CudaLaunchBinding =>
      launch('tw_grid', [0], { launch: shape({ gridX, gridY, cluster }) });
    const persistent = (per: number, times: number, blocksPerMultiprocessor = 1): GridExtent => ({
      kind: 'persistent',
      extent: 'T',
      per,
      times,
      blocksPerMultiprocessor,
    });
    const program = bind({
      launches: [
        grid({ kind: 'constant', count: 7 }, tiles('R', 10)),
        grid(tiles('T', 64, 3)),
        grid(persistent(64, 1)),
        grid(persistent(64, 3)),
        grid(persistent(64, 100, 2)),
        grid(persistent(64, 1), one, 2),
        grid(persistent(1000, 1), one, 2),
        grid(tiles('T', 64, 2), one, 2),
      ],
    });
    const grids = async (tokens: number): Promise<string[]> => {
      fake.reset();
      await program.run({ extents: [tokens, 25], inputs: [] });
      return fake.log('launch').map((line) => /grid=(\d+,\d+)/.exec(line)?.[1] ?? '');
    };
    // The fake device has 6 multiprocessors.
    expect(await grids(129)).toEqual(['7,3', '9,1', '3,1', '6,1', '12,1', '2,1', '2,1', '6,1']);
    expect(await grids(1)).toEqual(['7,3', '3,1', '1,1', '3,1', '12,1', '2,1', '2,1', '2,1']);
    expect(fake.log('launch')[5]).toContain('cluster=2');
    expect(() => bind({ launches: [grid(tiles('T', 64, 3), one, 2)] })).toThrow(
      /launches\[0\].launch.gridX is not always a whole number of clusters of 2/,
    );
    expect(() => bind({ launches: [grid({ kind: 'constant', count: 3 }, one, 2)] })).toThrow(
      /whole number of clusters/,
    );
    expect(() => bind({ launches: [grid(one, tiles('T', 1, 100))] })).toThrow(/1 × 100000 blocks is larger/);
    expect(() => bind({ launches: [grid(one, persistent(1, 1))] })).toThrow(/cannot be persistent/);
    expect(() => bind({ launches: [grid(tiles('T', 0))] })).toThrow(/per must be an integer from 1/);
  });

  it('encodes tensor maps from slots, checked against their size', async () => {
    const map = (more: Partial<CudaTensorMapBinding> = {}): CudaTensorMapBinding => ({
      slot: 1,
      dtype: 'f32',
      rows: 6,
      columns: 13,
      stride: 20,
      boxRows: 8,
      boxColumns: 16,
      swizzle: 0,
      ...more,
    });
    const tile = (tensorMap: CudaTensorMapBinding): CudaLaunchBinding =>
      launch('tw_tile', [2], { tensorMaps: [tensorMap], launch: shape({ gridX: one }) });
    const source = Float32Array.from({ length: 1024 }, (_, i) => i);
    memory.write(4096, source);
    const program = bind({ launches: [tile(map())] });
    expect(fake.log('map')).toEqual([
      'map type=7 rank=2 at=4096 sizes=13,6 stride=80 box=16,8 steps=1,1 interleave=0 swizzle=0 promotion=3 fill=0',
    ]);
    await program.run({ extents: [1, 0], inputs: [] });
    const expected = Float32Array.from({ length: 128 }, (_, i) =>
      i >> 4 < 6 && i % 16 < 13 ? (i >> 4) * 20 + (i % 16) : 0,
    );
    expect(new Float32Array(memory.read(8192, 512))).toEqual(expected);

    fake.reset();
    bind({
      launches: [
        tile(map({ dtype: 'bf16', rows: 'T', columns: 2, stride: 8, boxRows: 128, boxColumns: 64, swizzle: 128 })),
      ],
      extents: extentsTR(255, 100),
    });
    bind({
      launches: [
        tile(map({ dtype: 'f16', rows: 'R', columns: 2, stride: 8, boxRows: 4, boxColumns: 32, swizzle: 64 })),
      ],
      extents: extentsTR(1000, 9),
    });
    expect(fake.log('map')).toEqual([
      'map type=9 rank=2 at=4096 sizes=2,255 stride=16 box=64,128 steps=1,1 interleave=0 swizzle=3 promotion=3 fill=0',
      'map type=6 rank=2 at=4096 sizes=2,9 stride=16 box=32,4 steps=1,1 interleave=0 swizzle=2 promotion=3 fill=0',
    ]);
    const refusals: readonly [Partial<CudaTensorMapBinding>, RegExp][] = [
      [{ rows: 52 }, /shows 4132 bytes, its slot has 4096/],
      [{ rows: 'T' }, /its slot has 4096/],
      [{ stride: 12 }, /stride must be an integer from 13/],
      [{ stride: 22 }, /stride must be a multiple of 16 bytes/],
      [{ boxColumns: 3 }, /boxColumns must be a multiple of 16 bytes/],
      [{ boxRows: 257 }, /boxRows must be an integer from 1 to 256/],
      [{ swizzle: 32 }, /wider than the swizzle/],
      [{ slot: 4 }, /slot must be an integer from 0 to 3/],
      [{ columns: 0 }, /columns/],
      [{ rows: 0 }, /rows must not be 0/],
    ];
    for (const [more, message] of refusals)
      expect(() => bind({ launches: [tile(map(more))] }), JSON.stringify(more)).toThrow(message);
    fake.fail('cuTensorMapEncodeTiled', CODES.invalidValue);
    expect(() => bind({ launches: [tile(map())] })).toThrow(
      /cuTensorMapEncodeTiled \(device 0\): CUDA_ERROR_INVALID_VALUE/,
    );
  });

  it('grants kernels the shared memory they request, once, and no more than the device has', async () => {
    const shared = (sharedBytes: number): CudaLaunchBinding =>
      launch('tw_shared', [0, 1], { launch: shape({ sharedBytes }) });
    const large = bind({
      launches: [shared(200_000), shared(100_000), shared(1024)],
      inputs: [vector(0, 'T')],
    });
    const small = bind({ launches: [shared(150_000)] });
    expect(fake.log('shared')).toEqual(['shared tw_shared 200000']);
    await large.run({ extents: [5, 0], inputs: [iota(5)] });
    await small.run({ extents: [5, 0], inputs: [] });
    expect([...new Int32Array(memory.read(4096, 20))]).toEqual([1, 2, 3, 4, 5]);
    expect(() => bind({ launches: [shared(232_449)] })).toThrow(
      /tw_shared needs 232449 \+ 0 bytes of shared memory, a block of this device has at most 232448/,
    );
  });

  it('refuses bindings that do not fit the kernel or the memory', () => {
    expect(() => bind({ launches: [launch('tw_affine', [0])] })).toThrow(
      'tw_affine: parameter 3 is of 8 bytes in the kernel and absent in the binding',
    );
    expect(() => bind({ launches: [launch('tw_affine', [0, 1, 2])] })).toThrow(
      'tw_affine: parameter 4 is absent in the kernel and of 8 bytes in the binding',
    );
    expect(() => bind({ launches: [launch('tw_tile', [0, 1])] })).toThrow(
      'parameter 3 is of 128 bytes in the kernel and of 8 bytes in the binding',
    );
    // Neither these nor valid bindings ask the driver for what it does not have.
    expect(fake.log('refused')).toEqual([]);
    expect(() => bind({ launches: [launch('tw_affine', [0, 4])] })).toThrow(
      /slots\[1\] must be an integer from 0 to 3/,
    );
    expect(() => bind({ launches: [launch('tw_none', [0])] })).toThrow(/no kernel tw_none/);
    expect(() => bind({ launches: [launch('tw_wide', [0], { launch: shape({ threads: 512 }) })] })).toThrow(
      /tw_wide runs with at most 256 threads a block, not 512/,
    );
    expect(() => bind({ launches: [], slots: [{ memory, offset: 65536, bytes: 16 }] })).toThrow(/outside/);
    expect(() => bind({ launches: [], slots: [{ memory, offset: 8, bytes: 8 }] })).toThrow(/multiple of 16/);
    expect(() => bind({ launches: [], inputs: [vector(0, 'T')], extents: extentsTR(1025, 100) })).toThrow(
      /inputs\[0\] needs 4100 bytes at full capacity, its slot has 4096/,
    );
    const other = new cuda.Device(0);
    expect(() => bind({ launches: [], device: other })).toThrow(/another device/);
    other.release();
  });

  it('refuses requests that do not fit the program', () => {
    const program = chain();
    expect(() => program.run({ extents: [1001, 0], inputs: [] })).toThrow(/T must be an integer from 0 to 1000/);
    expect(() => program.run({ extents: [2, 0], inputs: [iota(2)] })).toThrow(/takes 2 inputs, not 1/);
    for (let i = 0; i < 3; i++)
      expect(() => program.run({ extents: [2, 1], inputs: [iota(2), iota(2)] })).toThrow(
        'inputs[1] has 2 entries, not 1',
      );
    program.release();
    expect(() => program.run({ extents: [2, 1], inputs: [iota(2), iota(1)] })).toThrow(/released/);
  });

  it('reports a kernel that faults or hangs as a dead context', async () => {
    const stray = bind({ launches: [launch('tw_affine', [0, 1]), launch('tw_trap', [0])] });
    await expect(stray.run({ extents: [1, 0], inputs: [] })).rejects.toMatchObject({
      code: 'CUDA_ERROR_ILLEGAL_ADDRESS',
      call: 'cuEventSynchronize',
      isContextDead: true,
      message: expect.stringMatching(
        /^cuEventSynchronize \(device 0\): CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access/,
      ),
    });
    // From here on the context answers nothing, but no call waits for ever.
    expect(() => memory.read(0, 4)).toThrow(/ILLEGAL_ADDRESS/);
    await expect(stray.run({ extents: [1, 0], inputs: [] })).rejects.toMatchObject({
      code: 'CUDA_ERROR_ILLEGAL_ADDRESS',
      isContextDead: true,
    });
    expect(() => device.memory()).toThrow(/ILLEGAL_ADDRESS/);
    fake.reset();
    await expect(stray.run({ extents: [1, 0], inputs: [], isSynchronous: true })).rejects.toThrow(
      /after launch 1, model.tw_trap$/,
    );
    fake.reset();
    const hung = bind({ launches: [launch('tw_hang', [0])] });
    await expect(hung.run({ extents: [1, 0], inputs: [] })).rejects.toMatchObject({
      code: 'CUDA_ERROR_LAUNCH_TIMEOUT',
      isContextDead: true,
    });
  });

  it('names the launch that the driver refuses, and continues to work', async () => {
    const program = chain();
    fake.fail('cuLaunchKernelEx', CODES.invalidValue, 2);
    const refused = program.run({ extents: [200, 1], inputs: [iota(200), iota(1)] });
    // A read waits for its turn on the JavaScript thread. It must complete although the run failed.
    memory.read(0, 4);
    await expect(refused).rejects.toMatchObject({
      isContextDead: false,
      message: expect.stringMatching(
        new RegExp(
          '^cuLaunchKernelEx .*\n' +
            'in model.tw_after: 2 × 1 blocks of 128 threads and 0 bytes of shared memory, clusters of 1$',
        ),
      ),
    });
    fake.reset();
    await program.run({ extents: [3, 1], inputs: [iota(3), iota(1)] });
  });

  it('leaves nothing behind if pinned memory is short', () => {
    const program = chain();
    fake.fail('cuMemHostAlloc', CODES.outOfMemory, 2);
    const request = { extents: [3, 1], inputs: [iota(3), iota(1)] };
    expect(() => program.run(request)).toThrow(/cuMemHostAlloc \(device 0\): CUDA_ERROR_OUT_OF_MEMORY/);
  });

  it('times launches in rotation', async () => {
    const program = chain();
    fake.reset();
    const times = await program.time({
      extents: [5, 1],
      inputs: [iota(5), iota(1)],
      launches: [0, 1],
      warmup: 1,
      repeats: 4,
      perSample: 3,
      flushBytes: 4096,
    });
    expect(times).toEqual(new Float64Array([3, 3, 3, 3]));
    const launched = fake.log('launch').map((line) => line.split(' ')[1]);
    expect(launched).toHaveLength(15);
    expect(launched.slice(0, 4)).toEqual(['tw_affine', 'tw_after', 'tw_affine', 'tw_after']);
    expect(fake.log('memset')).toEqual(Array.from({ length: 5 }, () => 'memset 4096'));
    expect([...new Int32Array(memory.read(4096, 8))]).toEqual([1, 3]);
    expect(() => program.time({ extents: [5, 1], launches: [3], warmup: 0, repeats: 1 })).toThrow(/from 0 to 2/);
    expect(() => program.time({ extents: [5, 1], launches: [], warmup: 0, repeats: 1 })).toThrow(/no launch/);
    expect(() => program.time({ extents: [5, 1], launches: [0], warmup: 0, repeats: 0 })).toThrow(/repeats/);
  });
});
