/** The addon's CUDA part on a real device: what the fake driver of the tests accepts must work on the real one. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { GridExtent, LaunchShape } from '../../ir/cuda.js';
import { loadAddon } from '../../runtime/addon.js';
import { type CudaAddon, cudaAvailable, isOutOfDeviceMemory, loadCudaAddon } from '../../runtime/cuda/addon.js';
import type {
  CudaDevice,
  CudaLaunchBinding,
  CudaMemory,
  CudaModule,
  CudaProgram,
  CudaProgramBinding,
} from '../../runtime/cuda/native.js';
import { HOPPER_KERNELS, KERNELS } from '../support/cudaKernels.js';
import { extentsTR, vector } from '../support/interface.js';
import { temporaryFolder } from './support.js';
import { trapScript } from './trap.js';

const available = cudaAvailable();
const skip = available.ok ? false : available.reason;
const capability = available.ok ? (available.devices[0]?.capability[0] ?? 0) : 0;
const skipHopper =
  capability >= 9 ? false : 'clusters, tensor maps and programmatic launch need compute capability 9.0 or newer';

const constant = (count: number): GridExtent => ({ kind: 'constant', count });
const tiles = (extent: 'T' | 'R', per: number, times = 1): GridExtent => ({ kind: 'tiles', extent, per, times });
const shape = (more: Partial<LaunchShape> = {}): LaunchShape => ({
  threads: 128,
  sharedBytes: 0,
  cluster: 1,
  gridX: tiles('T', 128),
  gridY: constant(1),
  ...more,
});
const iota = (length: number, from = 0): Int32Array => Int32Array.from({ length }, (_, i) => from + i);
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A device with the tests' kernels and a megabyte in four slots of 256 KiB. */
class Bench {
  readonly cuda: CudaAddon = loadCudaAddon();
  readonly device: CudaDevice = new this.cuda.Device(0);
  readonly common: CudaModule = new this.cuda.Module(this.device, bytesOf(KERNELS));
  readonly hopper: CudaModule | undefined =
    skipHopper === false ? new this.cuda.Module(this.device, bytesOf(HOPPER_KERNELS)) : undefined;
  readonly memory: CudaMemory = new this.cuda.Memory(this.device, 1 << 20);

  launch(symbol: string, slots: readonly number[], more: Partial<CudaLaunchBinding> = {}): CudaLaunchBinding {
    const module = KERNELS.includes(` ${symbol}(`) ? this.common : this.hopper;
    assert(module !== undefined);
    return {
      name: symbol,
      module,
      symbol,
      slots,
      tensorMaps: [],
      launch: shape(),
      usesProgrammaticLaunch: false,
      ...more,
    };
  }

  bind(binding: Partial<CudaProgramBinding> & Pick<CudaProgramBinding, 'launches'>): CudaProgram {
    const slots = [0, 1, 2, 3].map((i) => ({ memory: this.memory, offset: i << 18, bytes: 1 << 18 }));
    return new this.cuda.Program({
      device: this.device,
      extents: extentsTR(50_000, 5000),
      slots,
      inputs: [],
      outputs: [],
      ...binding,
    });
  }

  release(): void {
    for (const held of [this.memory, this.hopper, this.common, this.device]) held?.release();
  }
}

/** The first 8 × 16 elements of a view of 6 rows × 13 columns with stride 20 of 0, 1, 2, …: zeros outside. */
const TILE = Float32Array.from({ length: 128 }, (_, i) => (i >> 4 < 6 && i % 16 < 13 ? (i >> 4) * 20 + (i % 16) : 0));

describe('the CUDA driver', { skip }, () => {
  it('describes the device and its kernels', () => {
    const bench = new Bench();
    const { device, common, cuda } = bench;
    console.log(JSON.stringify(device.info));
    assert.match(device.info.uuid, /^[0-9a-f]{32}$/);
    assert(device.info.multiprocessors > 0 && device.info.l2Bytes > 0 && device.info.clockKHz > 0);
    assert(device.info.sharedBytesPerBlock >= 48 << 10);
    const { freeBytes, totalBytes } = device.memory();
    assert(freeBytes > 0 && totalBytes >= freeBytes);
    const affine = common.function('tw_affine');
    assert(affine.registers > 0 && affine.localBytes === 0 && affine.maxThreads === 1024);
    assert.equal(common.function('tw_wide').maxThreads, 256);
    assert(common.blocksPerMultiprocessor('tw_affine', 1024, 0) > 0);
    assert.throws(() => common.function('tw_missing'), /no kernel tw_missing/);
    assert.throws(
      () => new cuda.Module(device, bytesOf(KERNELS.replace('mad.lo.s32', 'syntax error'))),
      /CUDA_ERROR_INVALID_PTX[^]*ptxas/,
    );
    bench.release();
  });

  it('copies and fills', async () => {
    const bench = new Bench();
    const { memory } = bench;
    memory.fill(3);
    memory.write(100, iota(1000));
    memory.copyFrom(8192, memory, 100, 4000);
    assert.deepEqual(new Int32Array(memory.read(8192, 4000)), iota(1000));
    await memory.writeAsync(5, new Uint8Array([9]));
    assert.deepEqual([...new Uint8Array(await memory.readAsync(4, 3))], [3, 9, 3]);
    bench.release();
  });

  it('runs programs, two in flight, in order', async () => {
    const bench = new Bench();
    const program = bench.bind({
      launches: [
        bench.launch('tw_affine', [0, 1]),
        bench.launch('tw_affine', [1, 2]),
        bench.launch('tw_rows', [3, 1], { launch: shape({ gridX: tiles('R', 128) }) }),
      ],
      inputs: [vector(0, 'T'), vector(3, 'R')],
      outputs: [vector(2, 'T', 'i32'), vector(1, 'R', 'f32')],
    });
    let last: Promise<unknown> = Promise.resolve();
    for (let k = 1; k <= 20; k++) {
      const isTimed = k % 2 === 0;
      const run = program.run({ extents: [40_000 + k, k], inputs: [iota(40_000 + k, k), iota(k, k)], isTimed });
      await last;
      last = run.then(({ outputs, milliseconds, launchMilliseconds }) => {
        assert.deepEqual(
          new Int32Array(outputs[0]!),
          iota(40_000 + k, k).map((i) => 4 * i + 3),
        );
        assert.deepEqual(
          new Float32Array(outputs[1]!),
          Float32Array.from({ length: k }, (_, i) => -(i + k)),
        );
        assert(milliseconds > 0 && milliseconds < 1000);
        assert.equal(launchMilliseconds?.length, isTimed ? 3 : undefined);
        assert((launchMilliseconds ?? new Float64Array(0)).every((ms) => ms > 0 && ms < milliseconds));
      });
    }
    await last;
    program.release();
    bench.release();
  });

  it('gives a kernel the shared memory that it requests', async () => {
    const bench = new Bench();
    // tw_shared hands its value through one word of the block, so a block has one thread.
    const sharedBytes = bench.device.info.sharedBytesPerBlock;
    const program = bench.bind({
      launches: [
        bench.launch('tw_shared', [0, 1], { launch: shape({ threads: 1, sharedBytes, gridX: tiles('T', 1) }) }),
      ],
      inputs: [vector(0, 'T')],
      outputs: [vector(1, 'T', 'i32')],
    });
    const { outputs } = await program.run({ extents: [777, 0], inputs: [iota(777)] });
    assert.deepEqual(new Int32Array(outputs[0]!), iota(777, 1));
    program.release();
    bench.release();
  });

  it('launches the computed grid, and checks parameters if the driver reports them', async () => {
    const bench = new Bench();
    const program = bench.bind({
      launches: [bench.launch('tw_grid', [0], { launch: shape({ gridY: tiles('R', 100, 2) }) })],
    });
    bench.memory.fill(0);
    await program.run({ extents: [300, 150], inputs: [] });
    assert.deepEqual([...new Int32Array(bench.memory.read(0, 52))], [...Array.from({ length: 12 }, () => 3004), 0]);
    program.release();
    if (available.ok && available.driverVersion >= 12040)
      assert.throws(
        () => bench.bind({ launches: [bench.launch('tw_grid', [0, 1])] }),
        /parameter 3 is absent in the kernel/,
      );
    bench.release();
  });

  it('times launches', async () => {
    const bench = new Bench();
    const program = bench.bind({ launches: [bench.launch('tw_affine', [0, 1]), bench.launch('tw_affine', [2, 3])] });
    const request = { extents: [50_000, 1], launches: [0, 1], warmup: 10, repeats: 50 };
    for (const [name, more] of [
      ['one launch', {}],
      ['flushed', { flushBytes: 2 * bench.device.info.l2Bytes }],
      ['100 launches', { perSample: 100 }],
    ] as const) {
      const times = [...(await program.time({ ...request, ...more }))].sort((a, b) => a - b);
      console.log(`${name}: median ${(1000 * (times[25] ?? NaN)).toFixed(2)} µs`);
      assert(times.length === 50 && times.every((ms) => ms > 0 && ms < 1000));
    }
    program.release();
    bench.release();
  });

  it('uses clusters and tensor maps', { skip: skipHopper }, async () => {
    const bench = new Bench();
    const program = bench.bind({
      launches: [
        bench.launch('tw_cluster', [0], { launch: shape({ cluster: 2, gridX: constant(4) }) }),
        bench.launch('tw_tile', [1], {
          launch: shape({ gridX: constant(1) }),
          tensorMaps: [
            { slot: 2, dtype: 'f32', rows: 6, columns: 13, stride: 20, boxRows: 8, boxColumns: 16, swizzle: 0 },
          ],
        }),
      ],
    });
    bench.memory.write(
      2 << 18,
      Float32Array.from({ length: 1024 }, (_, i) => i),
    );
    await program.run({ extents: [1, 0], inputs: [] });
    assert.deepEqual([...new Int32Array(bench.memory.read(0, 16))], [2, 2, 2, 2]);
    assert.deepEqual(new Float32Array(bench.memory.read(1 << 18, 512)), TILE);
    program.release();
    bench.release();
  });

  it('starts launches while their predecessors end', { skip: skipHopper }, async () => {
    const bench = new Bench();
    const chain = (usesProgrammaticLaunch: boolean): CudaProgram =>
      bench.bind({
        launches: Array.from({ length: 200 }, (_, i) =>
          bench.launch('tw_after', [i % 2, 1 - (i % 2)], { usesProgrammaticLaunch }),
        ),
        inputs: [vector(0, 'T')],
        outputs: [vector(0, 'T', 'i32')],
      });
    for (const usesProgrammaticLaunch of [false, true]) {
      const program = chain(usesProgrammaticLaunch);
      const milliseconds: number[] = [];
      for (let i = 0; i < 5; i++) {
        const result = await program.run({ extents: [50_000, 0], inputs: [iota(50_000)] });
        assert.deepEqual(new Int32Array(result.outputs[0]!), iota(50_000, 200));
        milliseconds.push(result.milliseconds);
      }
      console.log(
        `200 dependent launches, ${usesProgrammaticLaunch ? 'programmatic' : 'plain'}: ` +
          `${Math.min(...milliseconds).toFixed(3)} ms`,
      );
      program.release();
    }
    bench.release();
  });

  it('uploads a mapped file', async () => {
    const bench = new Bench();
    const { cuda, device } = bench;
    const path = join(temporaryFolder(), 'weights.bin');
    const bytes = 512 << 20;
    const content = Buffer.alloc(bytes);
    for (let i = 0; i < bytes; i += 4096) content.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, i);
    writeFileSync(path, content);
    const source = new (loadAddon().Memory)(path);
    const target = new cuda.Memory(device, bytes);
    for (const threads of [1, 2, 4, 8]) {
      const upload = new cuda.Upload(device, { threads });
      await upload.copy([{ source, sourceOffset: 0, target, targetOffset: 0, bytes }]);
      target.fill(255);
      device.synchronize();
      const seconds = await upload.copy([{ source, sourceOffset: 0, target, targetOffset: 0, bytes }]);
      console.log(`upload by ${threads}: ${(bytes / seconds / 1e9).toFixed(1)} GB/s`);
      assert.equal(Buffer.compare(new Uint8Array(target.read(0, bytes)), content), 0);
      upload.release();
    }
    for (const held of [target, source]) held.release();
    bench.release();
  });

  it('reports a lack of memory, and releases memory', () => {
    const bench = new Bench();
    const { cuda, device } = bench;
    assert.throws(() => new cuda.Memory(device, device.info.totalBytes * 2), isOutOfDeviceMemory);
    const before = device.memory().freeBytes;
    const large = new cuda.Memory(device, 256 << 20);
    assert(device.memory().freeBytes <= before - (256 << 20));
    large.release();
    assert(device.memory().freeBytes >= before);
    bench.release();
  });

  it('reports an illegal access as a dead context, without affecting this process', () => {
    const outcomes = JSON.parse(
      execFileSync(process.execPath, ['--input-type=module', '-e', trapScript()], {
        encoding: 'utf8',
        timeout: 60_000,
      }),
    ) as unknown;
    assert.deepEqual(
      outcomes,
      Array.from({ length: 2 }, () => ({ code: 'CUDA_ERROR_ILLEGAL_ADDRESS', isContextDead: true, isNamed: true })),
    );
    const bench = new Bench();
    bench.memory.fill(1);
    assert.deepEqual([...new Uint8Array(bench.memory.read(0, 2))], [1, 1]);
    bench.release();
  });
});
