/**
 * The addon's CUDA interface over memory of this process: copies, fills and launches happen in order, with a small
 * delay, as on a stream. Kernels are C functions with the signature of generated kernels. A module's image is the name
 * of its set of kernels.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { LaunchShape } from '../../../ir/cuda.js';
import { loadAddon } from '../../../runtime/addon.js';
import type { CudaAddon } from '../../../runtime/cuda/addon.js';
import type {
  CudaDevice,
  CudaError,
  CudaMemory,
  CudaModule,
  CudaProgramBinding,
  CudaRunRequest,
  CudaRunResult,
  CudaUploadPart,
  CudaUploadStep,
  CudaUploadTimes,
} from '../../../runtime/cuda/native.js';
import type { Extent, NativeMemory, PortData } from '../../../runtime/native.js';

/** `sizes`: the integer parameters of the kernel. */
export type FakeKernel = (launch: LaunchShape, sizes: readonly number[], pointers: readonly bigint[]) => void;

export interface FakeOptions {
  /** Kernels of each module, by the text of its image. */
  readonly modules: Readonly<Record<string, Readonly<Record<string, FakeKernel>>>>;
  readonly totalBytes?: number;
  /** Milliseconds that a run and a copy take, random up to this. */
  readonly delay?: number;
}

/** What the tests inspect. */
export interface FakeState {
  liveBytes: number;
  peakBytes: number;
  /** Objects that were created and not released. */
  live: number;
  inFlight: number;
  maxInFlight: number;
  copies: number;
  maxCopies: number;
  /** Thrown by the next run. */
  nextError: Error | undefined;
  readonly bindings: CudaProgramBinding[];
}

export function outOfMemory(): CudaError {
  return Object.assign(new Error('cuLaunchKernelEx: out of memory'), {
    code: 'CUDA_ERROR_OUT_OF_MEMORY',
    call: 'cuLaunchKernelEx',
    isContextDead: false,
  });
}

/** A named extent in a call. */
const extentOf = (extent: Extent, { extents }: CudaProgramBinding, { extents: counts }: CudaRunRequest): number =>
  typeof extent === 'number' ? extent : counts[extents.findIndex(({ name }) => name === extent)]!;

export function fakeCuda({ modules, totalBytes = 1 << 30, delay = 0 }: FakeOptions): {
  readonly addon: CudaAddon;
  readonly state: FakeState;
} {
  const { Memory: HostMemory } = loadAddon();
  const state: FakeState = {
    liveBytes: 0,
    peakBytes: 0,
    live: 0,
    inFlight: 0,
    maxInFlight: 0,
    copies: 0,
    maxCopies: 0,
    nextError: undefined,
    bindings: [],
  };
  /** The end of the stream. */
  let stream: Promise<unknown> = Promise.resolve();
  const onStream = <T>(work: () => T | Promise<T>): Promise<T> => {
    const job = stream.then(work);
    stream = job.catch(() => undefined);
    return job;
  };
  const pause = (): Promise<void> => sleep(Math.random() * delay);
  const hosts = new Map<CudaMemory, NativeMemory>();

  class Tracked {
    private isReleased = false;
    constructor() {
      state.live++;
    }
    release(): void {
      if (this.isReleased) return;
      this.isReleased = true;
      state.live--;
      this.onRelease();
    }
    protected onRelease(): void {}
  }

  class Device extends Tracked implements CudaDevice {
    readonly stream = 0n;
    readonly info: CudaDevice['info'];
    constructor(ordinal: number) {
      super();
      this.info = {
        ordinal,
        name: 'Fake GPU',
        uuid: '0'.repeat(32),
        capability: [9, 0],
        multiprocessors: 4,
        totalBytes,
        l2Bytes: 1 << 20,
        sharedBytesPerBlock: 232448,
        sharedBytesPerMultiprocessor: 233472,
        clockKHz: 1000,
      };
    }
    memory(): { freeBytes: number; totalBytes: number } {
      return { freeBytes: totalBytes - state.liveBytes, totalBytes };
    }
    makeCurrent(): void {}
    synchronize(): void {}
  }

  class Memory extends Tracked implements CudaMemory {
    readonly sizeBytes: number;
    private readonly host: NativeMemory;
    /** `host` is allocated first: if that fails, nothing was created. */
    constructor(
      _device: CudaDevice,
      bytes: number,
      most?: number,
      host: NativeMemory = new HostMemory(bytes, most === undefined ? undefined : 'reserved'),
    ) {
      super();
      this.sizeBytes = bytes;
      this.host = host;
      // What was not written reads as NaN.
      if (most === undefined) this.host.write(0, new Uint8Array(bytes).fill(0xff));
      hosts.set(this, this.host);
      this.count(this.usableBytes);
    }
    get usableBytes(): number {
      return this.host.usableBytes;
    }
    private count(bytes: number): void {
      state.liveBytes += bytes;
      state.peakBytes = Math.max(state.peakBytes, state.liveBytes);
    }
    map(bytes: number): Promise<number> {
      return onStream(() => {
        const before = this.usableBytes;
        this.host.map(bytes);
        this.count(this.usableBytes - before);
        return this.usableBytes;
      });
    }
    get address(): bigint {
      return this.host.address;
    }
    protected override onRelease(): void {
      state.liveBytes -= this.usableBytes;
      hosts.delete(this);
      this.host.release();
    }
    write(offset: number, data: NodeJS.TypedArray): void {
      this.host.write(offset, data);
    }
    read(offset: number, bytes: number): ArrayBuffer {
      return this.host.read(offset, bytes);
    }
    async writeAsync(offset: number, data: NodeJS.TypedArray): Promise<undefined> {
      await onStream(() => this.host.write(offset, data));
      return undefined;
    }
    async writeBeside(
      writes: readonly { readonly offset: number; readonly data: NodeJS.TypedArray }[],
    ): Promise<undefined> {
      await onStream(() => {
        for (const { offset, data } of writes) this.host.write(offset, data);
      });
      return undefined;
    }
    readAsync(offset: number, bytes: number): Promise<ArrayBuffer> {
      return onStream(() => this.host.read(offset, bytes));
    }
    fill(byte: number, offset = 0, bytes = this.sizeBytes - offset): void {
      void onStream(() => this.host.write(offset, new Uint8Array(bytes).fill(byte)));
    }
    copyFrom(): void {
      throw new Error('not faked');
    }
    share(): never {
      throw new Error('not faked');
    }
    copyFromProcess(): never {
      throw new Error('not faked');
    }
  }

  class Module extends Tracked implements CudaModule {
    readonly kernels: Readonly<Record<string, FakeKernel>>;
    constructor(_device: CudaDevice, image: Uint8Array) {
      super();
      const found = modules[Buffer.from(image).toString()];
      if (found === undefined) throw new Error('an image of no module');
      this.kernels = found;
    }
    function(): never {
      throw new Error('not faked');
    }
    blocksPerMultiprocessor(): number {
      return 1;
    }
  }

  class Program extends Tracked {
    private readonly binding: CudaProgramBinding;
    private inFlight = 0;
    constructor(binding: CudaProgramBinding) {
      super();
      for (const { memory, offset, bytes } of binding.slots)
        if (offset % 16 !== 0 || offset + bytes > memory.sizeBytes) throw new Error(`a slot at ${offset}`);
      for (const { module, symbol } of binding.launches)
        if (!(module instanceof Module) || module.kernels[symbol] === undefined) throw new Error(`no kernel ${symbol}`);
      this.binding = binding;
      state.bindings.push(binding);
    }
    run(request: CudaRunRequest): Promise<CudaRunResult> {
      if (this.inFlight === 2) throw new Error('Two runs of this program are in flight.');
      this.inFlight++;
      state.maxInFlight = Math.max(state.maxInFlight, ++state.inFlight);
      const inputs = request.inputs.map((values) => values.slice());
      return onStream(async () => {
        await pause();
        try {
          return this.execute(request, inputs);
        } finally {
          this.inFlight--;
          state.inFlight--;
        }
      });
    }
    time(): never {
      throw new Error('not faked');
    }
    private execute(request: CudaRunRequest, inputs: readonly PortData[]): CudaRunResult {
      const error = state.nextError;
      state.nextError = undefined;
      if (error !== undefined) throw error;
      const { slots, launches, outputs } = this.binding;
      const hostOf = (slot: number): { host: NativeMemory; offset: number } => ({
        host: hosts.get(slots[slot]!.memory)!,
        offset: slots[slot]!.offset,
      });
      this.binding.inputs.forEach(({ slot, rows }, i) => {
        if (inputs[i]!.length !== extentOf(rows, this.binding, request))
          throw new Error('an input of the wrong length');
        const { host, offset } = hostOf(slot);
        host.write(offset, inputs[i]!);
      });
      for (const { module, symbol, slots: used, launch, sizes, isForAdapters } of launches.slice(
        request.launches?.first,
        request.launches?.end,
      )) {
        if (request.skipsAdapters === true && isForAdapters === true) continue;
        (module as Module).kernels[symbol]!(
          launch,
          (sizes ?? this.binding.extents.map(({ name }) => name)).map((size) => extentOf(size, this.binding, request)),
          used.map((slot) => slots[slot]!.memory.address + BigInt(slots[slot]!.offset)),
        );
      }
      return {
        milliseconds: 1,
        outputs: outputs.map(({ slot, rows }) => {
          const { host, offset } = hostOf(slot);
          return host.read(offset, extentOf(rows, this.binding, request) * 4);
        }),
        ...(request.isTimed === true ? { launchMilliseconds: Float64Array.from(launches, (_, i) => i + 1) } : {}),
      };
    }
  }

  class Upload extends Tracked {
    copiedBytes = 0;
    private last: Promise<unknown> = Promise.resolve();
    async copy(parts: readonly CudaUploadPart[]): Promise<number> {
      state.maxCopies = Math.max(state.maxCopies, ++state.copies);
      const job = this.last.then(async () => {
        await pause();
        for (const part of parts) {
          if (!('source' in part)) throw new Error('Encoded matrices are left to the fake driver.');
          const { source, sourceOffset, target, targetOffset, bytes } = part;
          hosts.get(target)!.write(targetOffset, new Uint8Array(source.read(sourceOffset, bytes)));
        }
        state.copies--;
        return 0;
      });
      this.last = job.catch(() => undefined);
      return job;
    }
    /** Step by step. What may overlap is left to the fake driver to show. */
    async load(program: Program, steps: readonly CudaUploadStep[]): Promise<CudaUploadTimes> {
      for (const { parts, launches } of steps) {
        if (parts.length > 0) await this.copy(parts);
        this.copiedBytes += parts.reduce((sum, { bytes }) => sum + bytes, 0);
        await program.run({ extents: [], inputs: [], launches });
      }
      return { total: 0, reading: 0, bus: 0, launches: 0, device: 0 };
    }
  }

  const unused = class {
    constructor() {
      throw new Error('not faked');
    }
    record(): void {}
    synchronize(): void {}
    millisecondsSince(): number {
      return 0;
    }
    release(): void {}
  };
  class Clock extends Tracked {
    readonly errorMilliseconds = 0;
  }

  class Pipeline {
    constructor() {
      throw new Error('not faked');
    }
    readonly routes = [];
    run(): never {
      throw new Error('not faked');
    }
    release(): void {}
  }
  return {
    state,
    addon: {
      prepare: () => undefined,
      load: () => ({ ok: false, reason: 'a fake' }),
      Device,
      Memory,
      Module,
      Event: unused,
      Program,
      Clock,
      Pipeline,
      Upload,
    },
  };
}
