/** The target-independent parts of binding a function's launches to memory: slots by name, inputs and outputs. */
import { extentIn, type Extents } from '../ir/extents.js';
import type { FunctionInterface, InputDecl, OutputDecl } from '../ir/function.js';
import type { Stage } from '../ir/plan.js';
import { DTYPE_BYTES } from '../ir/types.js';
import type { PortBinding, ProgramExtent } from './native.js';
import { nameOf, rowBytes, type RuntimeFunction } from './runtimePlan.js';

/** A range of a target's memory. */
export interface MemoryRange<M> {
  readonly memory: M;
  readonly offset: number;
  readonly bytes: number;
}

/** Slots by name: activations at the plan's placements, states and weights in their own memory. */
export class Slots<M> {
  readonly list: MemoryRange<M>[] = [];
  private readonly index = new Map<string, number>();
  private readonly alignment: number;

  /** Throws if a slot does not start at a multiple of `alignment`. */
  constructor(
    fn: RuntimeFunction,
    arena: M,
    others: readonly ReadonlyMap<string, MemoryRange<M>>[],
    alignment: number,
  ) {
    this.alignment = alignment;
    for (const { buffer, offset, sizeBytes } of fn.placements)
      this.add(buffer, { memory: arena, offset, bytes: sizeBytes });
    for (const named of others) for (const [name, slot] of named) this.add(name, slot);
  }

  /** Index of the slot of a buffer, state or weight. Throws if there is none. */
  of(name: string): number {
    const index = this.index.get(name);
    if (index === undefined) throw new Error(`The plan places neither a buffer nor a weight ${name}.`);
    return index;
  }

  private add(name: string, slot: MemoryRange<M>): void {
    if (slot.offset % this.alignment !== 0)
      throw new Error(`${name} lies at ${slot.offset}, which is no multiple of ${this.alignment} bytes.`);
    this.index.set(name, this.list.length);
    this.list.push(slot);
  }
}

/**
 * The inputs that a stage reads. Other inputs are left out, because another stage's arena may use their places for
 * something else. A stage of all launches takes every input.
 */
export function stageInputs(fn: RuntimeFunction, { first, end }: Stage): readonly InputDecl[] {
  const { inputs } = fn.interface;
  if (first === 0 && end === fn.launches.length) return inputs.filter(({ buffer }) => isPlaced(fn, buffer));
  const read = new Set(fn.launches.slice(first, end).flatMap(({ parameters }) => parameters));
  return inputs.filter(({ buffer }) => read.has(buffer));
}

/** The outputs of a stage: only the last stage has any. */
export const stageOutputs = (fn: RuntimeFunction, { end }: Stage): readonly OutputDecl[] =>
  end === fn.launches.length ? fn.interface.outputs : [];

const isPlaced = (fn: RuntimeFunction, name: string): boolean => fn.placements.some(({ buffer }) => buffer === name);

/** How the addon copies an input or output. Throws if no array has the declared type. */
export function portOf(
  fn: RuntimeFunction,
  { buffer: name, dtype }: InputDecl | OutputDecl,
  slot: number,
): PortBinding {
  const buffer = fn.buffers.find((each) => each.name === name);
  if (
    buffer === undefined ||
    dtype === 'bool' ||
    dtype === 'e4m3' ||
    dtype === 'i8' ||
    buffer.dtype !== dtype ||
    typeof buffer.columns !== 'number'
  )
    throw new Error(`${nameOf(fn)}: buffer ${name} cannot be copied in or out as ${dtype}.`);
  const stride = rowBytes(fn, buffer) / DTYPE_BYTES[dtype];
  return { slot, dtype, rows: buffer.rows, columns: buffer.columns, stride };
}

// What native programs are told of a function's extents.

type Declared = Pick<FunctionInterface, 'extents'>;

/** The extents of programs that are bound for calls up to `most`, in the order in which kernels take them. */
export const programExtents = ({ extents }: Declared, most: Extents): readonly ProgramExtent[] =>
  extents.map(({ name }) => ({ name, most: extentIn(name, most) }));

/** The sizes of a call in the order of its programs' extents. */
export const sizesOf = ({ extents }: Declared, size: Extents): readonly number[] =>
  extents.map(({ name }) => extentIn(name, size));
