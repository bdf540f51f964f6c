/** Uploads of mapped files through pinned buffers, on the fake driver. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it } from 'vitest';
import { loadAddon } from '../../../runtime/addon.js';
import { KERNELS } from '../../support/cudaKernels.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { extentsTR } from '../../support/interface.js';

describeFake('uploads', (fake) => {
  const cuda = fake.addon;
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-upload-'));
  const bytes = 300_001;
  const content = Uint8Array.from({ length: bytes }, (_, i) => (i * 31 + (i >> 8)) % 251);
  writeFileSync(join(folder, 'weights.bin'), content);
  const source = new (loadAddon().Memory)(join(folder, 'weights.bin'));
  const device = new cuda.Device(0);
  const atRest = fake.live();
  afterAll(() => {
    source.release();
    rmSync(folder, { recursive: true, force: true });
  });
  afterEach(() => {
    fake.reset();
    expect(fake.live()).toBe(atRest);
  });

  it('uploads a file larger than its buffers, whatever their number', async () => {
    for (const [threads, buffers] of [
      [1, 2],
      [3, 2],
      [2, 5],
      [1, 1],
    ] as const) {
      const upload = new cuda.Upload(device, { bufferBytes: 16384, threads, buffers });
      expect(fake.log('pin')).toEqual([`pin ${threads * buffers * 16384}`]);
      const target = new cuda.Memory(device, bytes + 16);
      target.fill(255);
      device.synchronize();
      const seconds = await upload.copy([{ source, sourceOffset: 0, target, targetOffset: 8, bytes }]);
      expect(seconds).toBeGreaterThan(0);
      expect(upload.copiedBytes).toBe(bytes);
      const result = new Uint8Array(target.read(0, bytes + 16));
      expect(Buffer.compare(result.subarray(8, 8 + bytes), content)).toBe(0);
      expect([...result.subarray(0, 8), ...result.subarray(bytes + 8)]).toEqual(new Array(16).fill(255));
      const sizes = fake.log('upload').map((line) => Number(line.split(' ')[1]));
      expect(sizes).toHaveLength(19);
      expect(Math.max(...sizes)).toBe(16384);
      upload.release();
      target.release();
      fake.reset();
    }
  });

  it('accepts many parts, including empty ones, and several copies in sequence', async () => {
    const upload = new cuda.Upload(device, { bufferBytes: 4096, threads: 2 });
    const target = new cuda.Memory(device, 20_000);
    const part = (sourceOffset: number, targetOffset: number, length: number) => ({
      source,
      sourceOffset,
      target,
      targetOffset,
      bytes: length,
    });
    const copies = [
      upload.copy([part(5, 0, 5000), part(0, 0, 0), part(100_000, 5000, 1)]),
      upload.copy([part(7, 10_000, 9999)]),
      upload.copy([]),
    ];
    await Promise.all(copies);
    const result = new Uint8Array(target.read(0, 20_000));
    expect(Buffer.compare(result.subarray(0, 5000), content.subarray(5, 5005))).toBe(0);
    expect(result[5000]).toBe(content[100_000]);
    expect(Buffer.compare(result.subarray(10_000, 19_999), content.subarray(7, 10_006))).toBe(0);
    upload.release();
    target.release();
  });

  it('refuses parts outside the file or the target', () => {
    const upload = new cuda.Upload(device, { bufferBytes: 4096, threads: 1 });
    const target = new cuda.Memory(device, 100);
    expect(() => upload.copy([{ source, sourceOffset: bytes - 50, target, targetOffset: 0, bytes: 51 }])).toThrow(
      /parts\[0\].source: .* outside a memory of 300001 bytes/,
    );
    expect(() => upload.copy([{ source, sourceOffset: 0, target, targetOffset: 50, bytes: 51 }])).toThrow(
      /parts\[0\].target: .* outside a device memory of 100 bytes/,
    );
    for (const bufferBytes of [0, 4095, 2 ** 31])
      expect(() => new cuda.Upload(device, { bufferBytes })).toThrow(/bufferBytes/);
    for (const buffers of [0, 65]) expect(() => new cuda.Upload(device, { buffers })).toThrow(/buffers/);
    for (const threads of [0, 65]) expect(() => new cuda.Upload(device, { threads })).toThrow(/threads/);
    upload.release();
    target.release();
  });

  it('executes the launches of steps in order, each after its copies, and copies only when they may', async () => {
    const module = new cuda.Module(device, new TextEncoder().encode(KERNELS));
    const memory = new cuda.Memory(device, 3 * 4096);
    const slots = [0, 1, 2].map((i) => ({ memory, offset: i * 4096, bytes: 4096 }));
    const launch = (from: number, to: number) => ({
      name: 'affine',
      module,
      symbol: 'tw_affine',
      sizes: [1, 1],
      slots: [from, to],
      tensorMaps: [],
      usesProgrammaticLaunch: false,
      launch: {
        threads: 128,
        sharedBytes: 0,
        cluster: 1 as const,
        gridX: { kind: 'constant', count: 1 } as const,
        gridY: { kind: 'constant', count: 1 } as const,
      },
    });
    const program = new cuda.Program({
      device,
      extents: [],
      slots,
      inputs: [],
      outputs: [],
      launches: [launch(0, 1), launch(1, 2), launch(0, 1)],
    });
    const upload = new cuda.Upload(device, { bufferBytes: 4096, threads: 2 });
    const word = (at: number): number => Buffer.from(content).readInt32LE(at);
    const copy = (sourceOffset: number) => ({ source, sourceOffset, target: memory, targetOffset: 0, bytes: 4 });
    // The second word overwrites the first, which it must not do before the first was read; the last launch reads it.
    const times = await upload.load(program, [
      { parts: [copy(40)], launches: { first: 0, end: 1 }, after: 0 },
      { parts: [], launches: { first: 1, end: 2 }, after: 0 },
      { parts: [copy(80)], launches: { first: 2, end: 3 }, after: 1 },
    ]);
    expect([0, 4096, 8192].map((at) => new Int32Array(memory.read(at, 4))[0])).toEqual([
      word(80),
      (2 * word(80) + 1) | 0,
      (4 * word(40) + 3) | 0,
    ]);
    expect(times.device).toBeCloseTo(0.003, 6);
    expect(upload.copiedBytes).toBe(8);
    expect((await upload.load(program, [])).device).toBe(0);

    const refused = (step: object, message: RegExp): void =>
      expect(() =>
        upload.load(program, [
          { parts: [], launches: { first: 0, end: 0 }, after: 0 },
          { parts: [], launches: { first: 0, end: 3 }, after: 0, ...step },
        ]),
      ).toThrow(message);
    refused({ after: 2 }, /steps\[1\]\.after must be an integer from 0 to 1/);
    refused({ launches: { first: 0, end: 4 } }, /steps\[1\]\.launches\.end must be an integer from 0 to 3/);
    refused({ launches: { first: 3, end: 2 } }, /steps\[1\]\.launches\.first must be an integer from 0 to 2/);
    refused(
      { parts: [{ ...copy(0), targetOffset: 3 * 4096 - 3 }] },
      /steps\[1\]\.parts\[0\]\.target: .* outside a device memory of 12288 bytes/,
    );
    const sized = new cuda.Program({ device, extents: extentsTR(1, 1), slots, inputs: [], outputs: [], launches: [] });
    expect(() => upload.load(sized, [])).toThrow(/program has extents/);
    sized.release();
    const other = new cuda.Device(0);
    const foreign = new cuda.Upload(other, { bufferBytes: 4096, threads: 1 });
    expect(() => foreign.load(program, [])).toThrow(/program belongs to another device object/);
    for (const held of [foreign, other, upload, program, memory, module]) held.release();
  });

  it('takes turns with programs', async () => {
    const upload = new cuda.Upload(device, { bufferBytes: 4096, threads: 2 });
    const module = new cuda.Module(device, new TextEncoder().encode(KERNELS));
    const memory = new cuda.Memory(device, 4096);
    const program = new cuda.Program({
      device,
      extents: [],
      slots: [],
      inputs: [],
      outputs: [],
      launches: [],
    });
    const parts = [{ source, sourceOffset: 0, target: memory, targetOffset: 0, bytes: 4096 }];
    const work = Array.from({ length: 4 }, (_, i) =>
      i % 2 === 0
        ? program.run({ extents: [], inputs: [] })
        : upload.load(program, [{ parts, launches: { first: 0, end: 0 }, after: 0 }]),
    );
    await Promise.all([...work, upload.copy(parts), memory.readAsync(0, 4)]);
    for (const held of [upload, program, memory, module]) held.release();
  });

  it('reports the first error of any thread, and can be used again', async () => {
    const upload = new cuda.Upload(device, { bufferBytes: 4096, threads: 3 });
    const target = new cuda.Memory(device, bytes);
    const parts = [{ source, sourceOffset: 0, target, targetOffset: 0, bytes }];
    fake.fail('cuMemcpyHtoDAsync_v2', CODES.illegalAddress, 10);
    await expect(upload.copy(parts)).rejects.toMatchObject({
      code: 'CUDA_ERROR_ILLEGAL_ADDRESS',
      call: 'cuMemcpyHtoDAsync_v2',
    });
    expect(upload.copiedBytes).toBeLessThan(bytes);
    fake.reset();
    await upload.copy(parts);
    expect(Buffer.compare(new Uint8Array(target.read(0, bytes)), content)).toBe(0);
    upload.release();
    target.release();
  });

  it('leaves nothing behind if pinned memory is short', () => {
    fake.fail('cuMemHostAlloc', CODES.outOfMemory);
    expect(() => new cuda.Upload(device, { threads: 2, bufferBytes: 4096 })).toThrow(
      /cuMemHostAlloc \(device 0\): CUDA_ERROR_OUT_OF_MEMORY/,
    );
  });
});
