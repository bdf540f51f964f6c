/** Uploads of mapped files through pinned buffers, on the fake driver. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it } from 'vitest';
import { loadAddon } from '../../../runtime/cpu/addon.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';

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

  it('brings a file larger than its buffers, whatever their number', async () => {
    for (const threads of [1, 3]) {
      const upload = new cuda.Upload(device, { stagingBytes: 16384, threads });
      expect(fake.log('pin')).toEqual(Array.from({ length: 2 * threads }, () => 'pin 16384'));
      const target = new cuda.Memory(device, bytes + 16);
      target.fill(255);
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

  it('takes many parts, empty ones too, and several copies one after another', async () => {
    const upload = new cuda.Upload(device, { stagingBytes: 4096, threads: 2 });
    const target = new cuda.Memory(device, 20_000);
    const part = (sourceOffset: number, targetOffset: number, length: number) => ({ source, sourceOffset, target, targetOffset, bytes: length });
    const copies = [upload.copy([part(5, 0, 5000), part(0, 0, 0), part(100_000, 5000, 1)]), upload.copy([part(7, 10_000, 9999)]), upload.copy([])];
    await Promise.all(copies);
    const result = new Uint8Array(target.read(0, 20_000));
    expect(Buffer.compare(result.subarray(0, 5000), content.subarray(5, 5005))).toBe(0);
    expect(result[5000]).toBe(content[100_000]);
    expect(Buffer.compare(result.subarray(10_000, 19_999), content.subarray(7, 10_006))).toBe(0);
    upload.release();
    target.release();
  });

  it('refuses parts outside the file or the target', () => {
    const upload = new cuda.Upload(device, { stagingBytes: 4096, threads: 1 });
    const target = new cuda.Memory(device, 100);
    expect(() => upload.copy([{ source, sourceOffset: bytes - 50, target, targetOffset: 0, bytes: 51 }])).toThrow(/parts\[0\].source: .* outside a memory of 300001 bytes/);
    expect(() => upload.copy([{ source, sourceOffset: 0, target, targetOffset: 50, bytes: 51 }])).toThrow(/parts\[0\].target: .* outside a device memory of 100 bytes/);
    for (const stagingBytes of [0, 4095, 2 ** 31]) expect(() => new cuda.Upload(device, { stagingBytes })).toThrow(/stagingBytes/);
    for (const threads of [0, 65]) expect(() => new cuda.Upload(device, { threads })).toThrow(/threads/);
    upload.release();
    target.release();
  });

  it('reports the first error of any thread, and can be used again', async () => {
    const upload = new cuda.Upload(device, { stagingBytes: 4096, threads: 3 });
    const target = new cuda.Memory(device, bytes);
    const parts = [{ source, sourceOffset: 0, target, targetOffset: 0, bytes }];
    fake.fail('cuMemcpyHtoDAsync_v2', CODES.illegalAddress, 10);
    await expect(upload.copy(parts)).rejects.toMatchObject({ code: 'CUDA_ERROR_ILLEGAL_ADDRESS', call: 'cuMemcpyHtoDAsync_v2' });
    expect(upload.copiedBytes).toBeLessThan(bytes);
    fake.reset();
    await upload.copy(parts);
    expect(Buffer.compare(new Uint8Array(target.read(0, bytes)), content)).toBe(0);
    upload.release();
    target.release();
  });

  it('leaves nothing behind where pinned memory is short', () => {
    fake.fail('cuMemHostAlloc', CODES.outOfMemory, 2);
    expect(() => new cuda.Upload(device, { threads: 2, stagingBytes: 4096 })).toThrow(/cuMemHostAlloc \(device 0\): CUDA_ERROR_OUT_OF_MEMORY/);
  });
});
