/**
 * Stores rows of states where they are computed. If a loop only copies rows that another kernel has computed into
 * states (keys and values of new tokens into their cache), and nobody else reads those rows, then that kernel stores
 * them there itself. One kernel less runs, and the rows are written once instead of twice. Kernels in, kernels out.
 *
 * The results are the same: a buffer and the state that it is copied to have one dtype, and so one rounding.
 */
import type { Kernel, KernelModule, LoopKernel, Output } from '../ir/kernel.js';
import { kernelReads, kernelWrites, mapOutputs, outputsOf } from '../ir/kernelAccess.js';

/** A store to a buffer that becomes one to rows of a state. */
interface Move {
  /** The kernel that computes the rows. */
  readonly from: number;
  readonly buffer: string;
  readonly state: string;
  readonly via: string;
}

/** The copy that an output is; undefined if it computes anything. */
function copyOf(output: Output): Omit<Move, 'from'> | undefined {
  if (output.kind !== 'store' || output.via === undefined) return undefined;
  const { buffer: state, via, value } = output;
  if (value.op !== 'load' || value.access.kind !== 'element' || value.access.via !== undefined) return undefined;
  return { buffer: value.buffer, state, via };
}

/** Kernels at their places while loops go, and the places of those that read and write each buffer. */
class KernelPlaces {
  readonly kernels: (Kernel | undefined)[] = [];
  private readonly readers = new Map<string, Set<number>>();
  private readonly writers = new Map<string, Set<number>>();
  private readonly dtypes: ReadonlyMap<string, string>;
  private readonly kept: ReadonlySet<string>;

  constructor(module: KernelModule) {
    this.dtypes = new Map(module.buffers.map(({ name, dtype }) => [name, dtype]));
    this.kept = new Set(module.interface.outputs.map(({ buffer }) => buffer));
    module.kernels.forEach((kernel, at) => this.put(at, kernel));
  }

  /** Puts `kernel` in the place of another; undefined takes that away. */
  put(at: number, kernel: Kernel | undefined): void {
    const old = this.kernels[at];
    if (old !== undefined) {
      for (const name of kernelReads(old)) this.readers.get(name)!.delete(at);
      for (const name of kernelWrites(old)) this.writers.get(name)!.delete(at);
    }
    this.kernels[at] = kernel;
    if (kernel === undefined) return;
    for (const name of kernelReads(kernel)) placesOf(this.readers, name).add(at);
    for (const name of kernelWrites(kernel)) placesOf(this.writers, name).add(at);
  }

  /** Where the stores of a loop can go; undefined if one of them must stay. */
  movesOf(loop: LoopKernel, at: number): readonly Move[] | undefined {
    const moves = loop.outputs.map((output) => this.moveOf(loop, at, output));
    return moves.every((move) => move !== undefined) ? moves : undefined;
  }

  private moveOf(loop: LoopKernel, at: number, output: Output): Move | undefined {
    const copy = copyOf(output);
    if (copy === undefined) return undefined;
    const { buffer, state, via } = copy;
    const from = Math.min(...placesOf(this.writers, buffer));
    const maker = this.kernels[from];
    if (maker === undefined || from >= at || maker.rows !== loop.rows || this.kept.has(buffer)) return undefined;
    const stores = outputsOf(maker).filter((each) => each.kind === 'store' && each.buffer === buffer);
    const isSame = this.dtypes.get(buffer) === this.dtypes.get(state);
    if (stores.length !== 1 || placesOf(this.readers, buffer).size !== 1 || !isSame) return undefined;
    // The state must not be in use between the two places, and the rows to write must be known at the first.
    const between = this.kernels.slice(from, at).filter((kernel) => kernel !== undefined);
    const isFree = between.every((kernel) => !kernelReads(kernel).has(state) && !kernelWrites(kernel).has(state));
    return isFree && between.every((kernel) => !kernelWrites(kernel).has(via)) ? { from, ...copy } : undefined;
  }
}

function placesOf(all: Map<string, Set<number>>, name: string): Set<number> {
  const known = all.get(name) ?? new Set();
  all.set(name, known);
  return known;
}

/** `kernel` with the moved stores in place of its own, for the versions of states that `loop` was made for. */
function withMoves(kernel: Kernel, moves: readonly Move[], loop: LoopKernel): Kernel {
  if (kernel.anchor !== 'gemm' && kernel.anchor !== 'loop') return kernel;
  const moved = (output: Output): Output => {
    const move = output.kind === 'store' ? moves.find(({ buffer }) => buffer === output.buffer) : undefined;
    return move === undefined || output.kind !== 'store' ? output : { ...output, buffer: move.state, via: move.via };
  };
  const versions = { ...kernel.versions };
  for (const { state } of moves) versions[state] = loop.versions?.[state] ?? 0;
  const changed = { versions, ops: [...kernel.ops, ...moves.map(() => 'write_rows' as const)] };
  return { ...mapOutputs(kernel, (outputs) => outputs.map(moved)), ...changed };
}

/** Moves the stores of every loop that only copies rows into states. */
export function fuseStateWrites<M extends KernelModule>(module: M): M {
  const places = new KernelPlaces(module);
  const gone = new Set<string>();
  const moveAll = (): boolean => {
    const before = gone.size;
    for (const [at, loop] of places.kernels.entries()) {
      const moves = loop?.anchor === 'loop' ? places.movesOf(loop, at) : undefined;
      if (moves === undefined || loop?.anchor !== 'loop') continue;
      for (const from of new Set(moves.map((move) => move.from))) {
        const own = moves.filter((move) => move.from === from);
        places.put(from, withMoves(places.kernels[from]!, own, loop));
      }
      places.put(at, undefined);
      for (const { buffer } of moves) gone.add(buffer);
    }
    return gone.size > before;
  };
  // A loop that is gone may be what kept another in its place.
  while (moveAll());
  if (gone.size === 0) return module;
  return {
    ...module,
    kernels: places.kernels.filter((kernel) => kernel !== undefined),
    buffers: module.buffers.filter(({ name }) => !gone.has(name)),
  };
}
