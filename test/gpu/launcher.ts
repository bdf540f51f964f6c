/** Launches generated kernels one at a time on a GPU, on memory copied from the host and back. */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import type { CudaArch, CudaKernelText } from '../../ir/cuda.js';
import { extentIn, type Extents } from '../../ir/extents.js';
import { KEYS_PER_TOKEN } from '../../ir/scoring.js';
import { roundUp } from '../../ir/types.js';
import { type CudaAddon, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaAvailability, CudaDevice, CudaMemory, CudaModule } from '../../runtime/cuda/native.js';
import { extentsOf } from '../codegen/cuda/emulate.js';

/** Bytes between parameters that no kernel may write: as far as a tile reaches. */
const GUARD_BYTES = 16 << 10;
const GUARD = 0xff;
const ALIGNMENT = 256;

/** The architecture that kernels for a device are compiled for, or why there is none. */
export function archOf(available: CudaAvailability): CudaArch | { readonly reason: string } {
  if (!available.ok) return { reason: available.reason };
  const [major, minor] = available.devices[0]?.capability ?? [0, 0];
  if (major === 9) return 'sm_90a';
  return major === 8
    ? 'sm_80'
    : { reason: `the device has compute capability ${major}.${minor}; kernels are for 8.x and 9.0` };
}

export class Launcher {
  private readonly cuda: CudaAddon = loadCudaAddon();
  private readonly device: CudaDevice = new this.cuda.Device(0);
  private readonly modules = new Map<string, CudaModule>();
  private readonly arch: CudaArch;
  private arena: CudaMemory | undefined;

  constructor(arch: CudaArch) {
    this.arch = arch;
  }

  get facts(): CudaFacts {
    const { sharedBytesPerBlock, multiprocessors } = this.device.info;
    return { arch: this.arch, sharedBytesPerBlock, multiprocessors };
  }

  /** Compiles and loads kernels in parallel. Returns how many there are, and the seconds it took. */
  async load(texts: readonly CudaKernelText[]): Promise<{ readonly count: number; readonly seconds: number }> {
    const units = [
      ...new Map(texts.map(({ symbol, source, headers }) => [symbol, { symbol, source, headers }])).values(),
    ];
    const { cubins, seconds } = await compileCubins(units, { arch: this.arch });
    for (const { symbol } of units) this.modules.set(symbol, new this.cuda.Module(this.device, cubins.get(symbol)!));
    return { count: units.length, seconds };
  }

  /** Runs a kernel on the memory of its parameters, which it changes. Throws if it writes between them. */
  async launch(
    text: CudaKernelText,
    memory: ReadonlyMap<string, Buffer>,
    sizes: Extents,
    capacity: number,
  ): Promise<void> {
    const { symbol, parameters, tensorMaps, launch, waitsForPredecessor } = text;
    const extents = extentsOf(text);
    let end = GUARD_BYTES;
    const places = parameters.map((name) => {
      const bytes = memory.get(name)!.length;
      const offset = end;
      end = roundUp(offset + bytes + GUARD_BYTES, ALIGNMENT);
      return { name, offset, bytes };
    });
    if (this.arena === undefined || this.arena.sizeBytes < end) {
      this.arena?.release();
      this.arena = new this.cuda.Memory(this.device, end);
    }
    const arena = this.arena;
    const staged = Buffer.alloc(end, GUARD);
    for (const { name, offset } of places) memory.get(name)!.copy(staged, offset);
    arena.write(0, staged);
    const program = new this.cuda.Program({
      device: this.device,
      extents: extents.map((name) => ({ name, most: name === 'C' ? KEYS_PER_TOKEN * capacity : capacity })),
      inputs: [],
      outputs: [],
      slots: places.map(({ offset, bytes }) => ({ memory: arena, offset, bytes })),
      launches: [
        {
          name: symbol,
          module: this.modules.get(symbol)!,
          symbol,
          slots: places.map((_, i) => i),
          tensorMaps: tensorMaps.map(({ parameter, ...map }) => ({ ...map, slot: parameter })),
          launch,
          usesProgrammaticLaunch: waitsForPredecessor,
        },
      ],
    });
    try {
      await program.run({ extents: extents.map((name) => extentIn(name, sizes)), inputs: [], isSynchronous: true });
    } finally {
      program.release();
    }
    const result = Buffer.from(arena.read(0, end));
    let from = 0;
    for (const { name, offset, bytes } of [...places, { name: 'the end', offset: end, bytes: 0 }]) {
      if (result.subarray(from, offset).some((byte) => byte !== GUARD))
        throw new Error(`${symbol} wrote outside its buffers, before ${name}`);
      from = offset + bytes;
      if (bytes > 0) result.copy(memory.get(name)!, 0, offset, from);
    }
  }

  release(): void {
    this.arena?.release();
    for (const module of this.modules.values()) module.release();
    this.device.release();
  }
}
