/** Devices, memory, modules and errors, on the fake driver. */
import { execFileSync } from 'node:child_process';
import { afterEach, expect, it } from 'vitest';
import { isCudaError, isOutOfDeviceMemory } from '../../../runtime/cuda/addon.js';
import type { CudaDevice } from '../../../runtime/cuda/native.js';
import { HOPPER_KERNELS, KERNELS } from '../../support/cudaKernels.js';
import { CODES, describeFake } from '../../support/fakeCuda/fakeDriver.js';

/** The properties by which a program can tell errors apart. */
function outcome(body: () => unknown): unknown {
  try {
    body();
    return 'no error';
  } catch (error) {
    return isCudaError(error) ? { code: error.code, call: error.call, isContextDead: error.isContextDead } : error;
  }
}

const text = (ptx: string): Uint8Array => new TextEncoder().encode(ptx);

describeFake('devices, memory and modules', (fake) => {
  const cuda = fake.addon;
  const device = new cuda.Device(0);
  const atRest = fake.live();
  const make = (bytes: number): InstanceType<typeof cuda.Memory> => new cuda.Memory(device, bytes);
  afterEach(() => {
    fake.reset();
    expect(fake.live()).toBe(atRest);
  });

  it('lists its devices in a process whose environment says what to fail', () => {
    const ask = (fakeCuda: string): unknown => {
      const script =
        `process.stdout.write(JSON.stringify(require('./build/Release/tilewright.node').cuda.load(` +
        `${JSON.stringify(fake.path)})))`;
      return JSON.parse(
        execFileSync(process.execPath, ['-e', script], { env: { FAKE_CUDA: fakeCuda }, encoding: 'utf8' }),
      );
    };
    expect(ask('devices=2')).toMatchObject({
      ok: true,
      driverVersion: 12040,
      devices: [{ name: 'Fake H100' }, { name: 'Fake H101', ordinal: 1 }],
    });
    expect(ask('devices=0')).toEqual({
      ok: false,
      reason: 'cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected',
    });
    expect(ask('fail:cuDeviceGetName:801')).toEqual({
      ok: false,
      reason: 'cuDeviceGetName (device 0): CUDA_ERROR_801',
    });
  });

  it('prepares a device beside JavaScript, hands it out once, and leaves it to others to say what is wrong', () => {
    const ask = (fakeCuda: string, ordinal: number, wanted: number): unknown => {
      const script = `
        const { cuda } = require('./build/Release/tilewright.node');
        cuda.prepare(${JSON.stringify(fake.path)}, ${ordinal});
        cuda.prepare('/no/such/driver', 1);
        const { ok, reason } = cuda.load(${JSON.stringify(fake.path)});
        let streams = [];
        try {
          streams = [1, 2].map(() => String(new cuda.Device(${wanted}).stream));
        } catch (error) {
          streams = [error.message];
        }
        process.stdout.write(JSON.stringify({ ok, reason, streams: new Set(streams).size, said: streams[0] }));`;
      return JSON.parse(
        execFileSync(process.execPath, ['-e', script], { env: { FAKE_CUDA: fakeCuda }, encoding: 'utf8' }),
      );
    };
    expect(ask('devices=2', 0, 0)).toMatchObject({ ok: true, streams: 2 });
    expect(ask('devices=2', 1, 0)).toMatchObject({ ok: true, streams: 2 });
    expect(ask('devices=1', 5, 0)).toMatchObject({ ok: true, streams: 2 });
    expect(ask('devices=0', 0, 0)).toMatchObject({ ok: false, reason: expect.stringContaining('NO_DEVICE') as string });
    expect(ask('fail:cuStreamCreate:999', 0, 0)).toMatchObject({
      ok: true,
      said: expect.stringContaining('cuStreamCreate') as string,
    });
  });

  it('describes a device', () => {
    expect(device.info).toEqual({
      ordinal: 0,
      name: 'Fake H100',
      uuid: '00102030405060708090a0b0c0d0e0f0',
      capability: [9, 0],
      multiprocessors: 6,
      totalBytes: 2 ** 30,
      l2Bytes: 50 * 2 ** 20,
      sharedBytesPerBlock: 232448,
      sharedBytesPerMultiprocessor: 233472,
      clockKHz: 1980000,
    });
    const before = device.memory();
    const memory = make(1 << 20);
    expect(device.memory().freeBytes).toBe(before.freeBytes - (1 << 20));
    memory.release();
    expect(device.stream).not.toBe(0n);
    device.makeCurrent();
    device.synchronize();
    expect(() => new cuda.Device(1)).toThrow('There is no CUDA device 1: the driver shows 1');
    expect(() => new cuda.Device(-1)).toThrow(/integer/);
  });

  it('releases the context with its last user', () => {
    const second = new cuda.Device(0);
    const memory = new cuda.Memory(second, 64);
    second.release();
    expect(() => second.info).toThrow(/released/);
    expect(fake.live()).toBe(atRest + 3);
    expect(memory.read(0, 1).byteLength).toBe(1);
    memory.release();
    expect(fake.live()).toBe(atRest);
  });

  it('leaves nothing behind if a device cannot be opened', () => {
    fake.fail('cuStreamCreate', CODES.outOfMemory);
    expect(outcome(() => new cuda.Device(0))).toEqual({
      code: 'CUDA_ERROR_OUT_OF_MEMORY',
      call: 'cuStreamCreate',
      isContextDead: false,
    });
  });

  it('copies, fills and reads memory, synchronously or not', async () => {
    const [a, b] = [make(64), make(64)];
    a.fill(7);
    a.fill(1, 60);
    a.write(4, new Int32Array([1, 2, 3, 4]).subarray(1, 3));
    b.fill(0);
    b.copyFrom(8, a, 4, 8);
    expect([...new Int32Array(b.read(0, 20))]).toEqual([0, 0, 2, 3, 0]);
    const later = a.writeAsync(0, new Uint8Array([9, 8]));
    const read = a.readAsync(0, 64);
    await later;
    const bytes = new Uint8Array(await read);
    expect([...bytes.subarray(0, 6)]).toEqual([9, 8, 7, 7, 2, 0]);
    expect([...bytes.subarray(58)]).toEqual([7, 7, 1, 1, 1, 1]);
    expect(a.read(64, 0).byteLength).toBe(0);
    a.release();
    b.release();
  });

  it('refuses ranges outside a memory, foreign objects, and use after release', async () => {
    const memory = make(64);
    expect(() => memory.read(60, 5)).toThrow(/outside a device memory of 64 bytes/);
    expect(() => memory.write(63, new Uint8Array(2))).toThrow(/outside/);
    expect(() => memory.writeAsync(63, new Uint8Array(2))).toThrow(/outside/);
    expect(() => memory.readAsync(Number.MAX_SAFE_INTEGER, 1)).toThrow(/outside/);
    expect(() => memory.fill(256)).toThrow(/integer from 0 to 255/);
    expect(() => memory.copyFrom(0, memory, 1, 64)).toThrow(/outside/);
    const stranger: unknown = {};
    expect(() => Reflect.construct(cuda.Memory, [stranger, 4])).toThrow(/must be a Device of this addon/);
    expect(() => Reflect.construct(cuda.Memory, [memory, 4])).toThrow(/must be a Device of this addon/);
    for (const bytes of [0, -1, 0.5, 2 ** 50]) expect(() => make(bytes)).toThrow();
    const other: CudaDevice = new cuda.Device(0);
    const foreign = new cuda.Memory(other, 64);
    expect(() => memory.copyFrom(0, foreign, 0, 4)).toThrow(/another device/);
    foreign.release();
    other.release();
    const pending = memory.readAsync(0, 4);
    memory.release();
    await pending;
    expect(() => memory.sizeBytes).toThrow(/released/);
  });

  it("reports a lack of memory with the driver's message", () => {
    fake.set('totalBytes', 1000);
    const memory = make(900);
    try {
      make(200);
      expect.unreachable();
    } catch (error) {
      expect(isOutOfDeviceMemory(error)).toBe(true);
      expect(String(error)).toBe(
        'Error: cuMemAlloc_v2 (device 0): CUDA_ERROR_OUT_OF_MEMORY: out of memory\n200 bytes were asked for',
      );
    }
    memory.release();
  });

  it('names a call that fails off the JavaScript thread', async () => {
    const memory = make(64);
    fake.fail('cuMemcpyDtoHAsync_v2', CODES.illegalAddress);
    await expect(memory.readAsync(0, 4)).rejects.toMatchObject({
      code: 'CUDA_ERROR_ILLEGAL_ADDRESS',
      call: 'cuMemcpyDtoHAsync_v2',
      isContextDead: true,
    });
    memory.release();
  });

  it('loads modules and describes their kernels', () => {
    const module = new cuda.Module(device, text(KERNELS));
    expect(module.function('tw_affine')).toEqual({
      registers: 24,
      localBytes: 0,
      sharedBytes: 0,
      constantBytes: 64,
      maxThreads: 1024,
      binaryVersion: 90,
    });
    module.function('tw_affine');
    expect(fake.log('load')).toEqual(['load tw_affine']);
    expect(() => module.function('tw_missing')).toThrow('The module has no kernel tw_missing');
    expect(module.blocksPerMultiprocessor('tw_affine', 512, 100_000)).toBe(2);
    expect(module.blocksPerMultiprocessor('tw_affine', 512, 300_000)).toBe(0);
    expect(module.blocksPerMultiprocessor('tw_wide', 512, 0)).toBe(0);
    module.release();
    expect(() => module.function('tw_affine')).toThrow(/released/);
  });

  it("shows the assembler's log for PTX that it refuses", () => {
    expect(() => new cuda.Module(device, text(HOPPER_KERNELS.replace('ret;', 'syntax error')))).toThrow(
      /CUDA_ERROR_INVALID_PTX: .*\n.*Parsing error near 'syntax'/,
    );
    expect(outcome(() => new cuda.Module(device, new Uint8Array([1, 2, 3])))).toMatchObject({
      code: 'CUDA_ERROR_INVALID_IMAGE',
    });
    expect(() => new cuda.Module(device, new Uint8Array(0))).toThrow(/image of 0 bytes/);
  });

  it('measures the time between events', () => {
    const [begin, end] = [new cuda.Event(device), new cuda.Event(device)];
    const memory = make(64);
    begin.record();
    memory.fill(1);
    memory.fill(2);
    end.record();
    expect(outcome(() => end.millisecondsSince(begin))).toMatchObject({ code: 'CUDA_ERROR_NOT_READY' });
    end.synchronize();
    expect(end.millisecondsSince(begin)).toBe(0.5);
    for (const held of [begin, end, memory]) held.release();
  });
});
