/** The parts of a plan that a runtime reads, and small queries used by binding, searching and profiling. */
import { UserError } from '../errors.js';
import { isReserved, type StateDecl } from '../ir/function.js';
import type { BufferDecl, Kernel, WeightDecl } from '../ir/kernel.js';
import { kernelReads, kernelWrites, mayWrite } from '../ir/kernelAccess.js';
import { type FunctionPlan, type Plan, rowStride, type Stage, stateBytes, stateRowBytes } from '../ir/plan.js';
import { type Dim, DTYPE_BYTES, isFloat } from '../ir/types.js';

/** The runtime does not read schedules. */
export type RuntimeFunction = Omit<FunctionPlan, 'schedules'>;

export interface RuntimePlan extends Omit<Plan, 'functions'> {
  readonly functions: readonly RuntimeFunction[];
  /** States of which each stage of a pipeline has rows of its own, as none reads what another wrote. */
  readonly perStage?: readonly string[];
}

/** The function called `name`. Throws RangeError if the plan has none. */
export function functionOf(plan: RuntimePlan, name: string): RuntimeFunction {
  const found = plan.functions.find((each) => each.interface.name === name);
  if (found === undefined)
    throw new RangeError(
      `There is no function ${name}; there is ${plan.functions.map((each) => each.interface.name).join(', ')}.`,
    );
  return found;
}

export const nameOf = (fn: RuntimeFunction): string => fn.interface.name;

/** The kernel of a launch. Throws if the plan has none. */
export function kernelOf(fn: RuntimeFunction, launch: number): Kernel {
  const name = fn.launches[launch]?.kernel;
  const found = fn.kernels.find((kernel) => kernel.name === name);
  if (found === undefined)
    throw new Error(`Launch ${launch} of ${nameOf(fn)} runs ${name}, which the plan does not have.`);
  return found;
}

/** Whether a launch does nothing in a call without adapters. */
export const isForAdapters = (fn: RuntimeFunction, launch: number): boolean => kernelOf(fn, launch).anchor === 'shrink';

/** A floating-point buffer that a kernel writes, to be searched for values that are not finite. */
export interface FloatWrite {
  readonly buffer: string;
  readonly dtype: 'f32' | 'f16' | 'bf16';
  readonly rows: Dim;
  readonly columns: Dim;
  /** Elements from row to row. */
  readonly stride: number;
  /** Whether −∞ is a valid value: in masks, and in the parts of a log-sum-exp (a target outside its block). */
  readonly allowsNegativeInfinity: boolean;
}

/** Bytes from one row of a buffer to the next. */
export function rowBytes(fn: RuntimeFunction, buffer: BufferDecl): number {
  const bytes = DTYPE_BYTES[buffer.dtype];
  return rowStride(buffer, fn.capacity.extents, bytes) * bytes;
}

/** What each launch of a function writes, in order. */
export function floatWrites(fn: RuntimeFunction): readonly (readonly FloatWrite[])[] {
  const buffers = new Map(fn.buffers.map((buffer) => [buffer.name, buffer]));
  const masks = masksOf(fn);
  const ofKernel = new Map<string, readonly FloatWrite[]>();
  // Rows without adapter leave anything in what is shrunk.
  const writesOf = (kernel: Kernel): readonly FloatWrite[] =>
    (kernel.anchor === 'shrink' ? [] : [...kernelWrites(kernel)]).flatMap((name) => {
      const buffer = buffers.get(name);
      if (buffer === undefined) throw new Error(`The plan has no buffer ${name}.`);
      const { dtype, rows, columns, space } = buffer;
      // A call writes only some rows of a state; others may not be mapped. A kernel that reads a bad row is found.
      if (!isFloat(dtype) || space === 'state') return [];
      const stride = rowBytes(fn, buffer) / DTYPE_BYTES[dtype];
      return [{ buffer: name, dtype, rows, columns, stride, allowsNegativeInfinity: masks.has(name) }];
    });
  return fn.launches.map((_, i) => {
    const kernel = kernelOf(fn, i);
    const known = ofKernel.get(kernel.name) ?? writesOf(kernel);
    ofKernel.set(kernel.name, known);
    return known;
  });
}

function masksOf(fn: RuntimeFunction): ReadonlySet<string> {
  const masks = new Set<string>();
  for (const kernel of fn.kernels) {
    if (kernel.anchor === 'logprob') masks.add(kernel.parts);
    if (kernel.anchor === 'sample') for (const name of kernelWrites(kernel)) masks.add(name);
    if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias') masks.add(kernel.mask.buffer);
  }
  return masks;
}

// The part of a plan that one stage of a pipeline executes, and what it hands to the next.

/** The launches of each function that one device executes, by the function's name. */
export type StageRanges = Readonly<Record<string, Stage>>;

/** The cuts of each function, by its name: as many stages of every one. */
export type PlanStages = Readonly<Record<string, readonly Stage[]>>;

/**
 * The ranges of each stage. Without `stages` there is one, with all launches.
 * Throws RangeError where the stages of a function are not its launches in order, or of another number than another's.
 */
export function stageRanges(plan: RuntimePlan, stages: PlanStages = {}): readonly StageRanges[] {
  const cuts = plan.functions.map((fn): readonly [string, readonly Stage[]] => {
    const all = fn.launches.length;
    const parts = stages[nameOf(fn)] ?? [{ first: 0, end: all }];
    // One that returns nothing changes states, and a stage may have none.
    const least = fn.interface.outputs.length === 0 ? 0 : 1;
    const isWhole =
      parts.every(({ first, end }, i) => first === (i === 0 ? 0 : parts[i - 1]!.end) && first + least <= end) &&
      parts.at(-1)?.end === all;
    if (!isWhole)
      throw new RangeError(
        `Stages ${parts.map(({ first, end }) => `${first}–${end - 1}`).join(', ')} ` +
          `are not the ${all} launches of ${nameOf(fn)} in order.`,
      );
    return [nameOf(fn), parts];
  });
  const count = cuts[0]?.[1].length ?? 0;
  for (const [name, parts] of cuts)
    if (parts.length !== count)
      throw new RangeError(`${name} has ${parts.length} stages, ${cuts[0]![0]} has ${count}.`);
  return Array.from({ length: count }, (_, i) => Object.fromEntries(cuts.map(([name, parts]) => [name, parts[i]!])));
}

/** Names of the buffers, states and weights that a stage's launches take. */
function namesOf(plan: RuntimePlan, ranges: StageRanges): ReadonlySet<string> {
  return new Set(
    plan.functions.flatMap((fn) => {
      const { first, end } = ranges[nameOf(fn)]!;
      return fn.launches.slice(first, end).flatMap(({ parameters }) => parameters);
    }),
  );
}

/** The weights that a stage's launches read. */
export function stageWeights(plan: RuntimePlan, ranges: StageRanges): readonly WeightDecl[] {
  const named = namesOf(plan, ranges);
  return plan.weights.filter(({ name }) => named.has(name));
}

/** A state in the memory of the one stage that uses it. Functions have it as a buffer of its name. */
export interface PlacedState {
  readonly name: string;
  /** Of all rows. */
  readonly bytes: number;
  readonly rowBytes: number;
  /** Whether it has addresses for all rows, and memory behind the first of them alone. */
  readonly isReserved: boolean;
}

const placedState = (state: StateDecl): PlacedState => ({
  name: state.name,
  bytes: stateBytes(state, state.rows),
  rowBytes: stateRowBytes(state),
  isReserved: isReserved(state),
});

/**
 * The states that live on stage `index`: those that its launches use. Throws where another stage uses one too: memory
 * of one device is not another's.
 */
export function stageStates(plan: RuntimePlan, stages: readonly StageRanges[], index: number): readonly PlacedState[] {
  const users = stages.map((ranges) => namesOf(plan, ranges));
  return plan.states.flatMap((state): PlacedState[] => {
    const used = users.flatMap((named, stage) => (named.has(state.name) ? [stage] : []));
    if (used.length > 1 && plan.perStage?.includes(state.name) !== true)
      throw new UserError(
        `stages ${used.join(' and ')} of the pipeline would share the state ${state.name}, which lives on one device`,
        'use replicas instead: --parallel dp=N',
      );
    return used.includes(index) ? [placedState(state)] : [];
  });
}

/**
 * What crosses a cut before launch `end`: the buffers that earlier launches write and later ones read, and outputs that
 * earlier ones write. In the order of the function's buffers; inputs, which every stage is given, are not among them.
 */
export function boundaryOf(fn: RuntimeFunction, end: number): readonly BufferDecl[] {
  const written = new Set<string>();
  const read = new Set<string>();
  fn.launches.forEach((_, i) => {
    const kernel = kernelOf(fn, i);
    for (const buffer of i < end ? mayWrite(kernel) : kernelReads(kernel)) (i < end ? written : read).add(buffer);
  });
  return fn.buffers.filter(
    ({ name, space }) =>
      (space === 'arena' && written.has(name) && read.has(name)) || (space === 'output' && written.has(name)),
  );
}

/** Rows of a buffer that the next stage reads, at the same place of its arena. */
export interface Crossing {
  readonly offset: number;
  readonly rows: BufferDecl['rows'];
  readonly rowBytes: number;
}

/** What crosses a cut before launch `end`, as ranges of the arena; nothing behind the last launch. */
export function crossingsOf(fn: RuntimeFunction, end: number): readonly Crossing[] {
  if (end === fn.launches.length) return [];
  const offsets = new Map(fn.placements.map(({ buffer, offset }) => [buffer, offset]));
  return boundaryOf(fn, end).map((buffer) => {
    const offset = offsets.get(buffer.name);
    if (offset === undefined) throw new Error(`Nothing places ${buffer.name}, which crosses a cut.`);
    return { offset, rows: buffer.rows, rowBytes: rowBytes(fn, buffer) };
  });
}
