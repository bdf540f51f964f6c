/** Binds the launches of a function to memory: one program for each bucket. */
import { defined } from '../../system/defined.js';
import type { Stage } from '../../ir/placement.js';
import type { LaunchBinding, ProgramBinding } from '../nativeProgram.js';
import type { NativeLibrary, NativePool, Slot } from '../nativeObjects.js';
import { portOf, Slots, stageInputs, stageOutputs } from '../bindPorts.js';
import { programExtents } from '../extents.js';
import { floatWrites, kernelOf, nameOf, type RuntimeFunction } from '../runtimePlan.js';

/** What code generation says about one launch of one bucket. */
export interface LaunchSymbol {
  /** Full path of the shared object that holds it, or the name by which that is compiled (libraries.ts). */
  readonly library: string;
  readonly symbol: string;
  /** Bytes of scratch memory that each worker needs. */
  readonly scratchBytes: number;
}

/** symbols[bucket][launch] of each function, by its name. */
export type PlanSymbols = Readonly<Record<string, readonly (readonly LaunchSymbol[])[]>>;

export interface BindRequest {
  readonly fn: RuntimeFunction;
  /** The launches of this stage. The stage with the last launch returns the outputs. */
  readonly range: Stage;
  readonly bucket: number;
  /** Symbols of all launches of the function. */
  readonly symbols: readonly LaunchSymbol[];
  readonly pool: NativePool;
  readonly libraries: ReadonlyMap<string, NativeLibrary>;
  /** Weights and states. */
  readonly shared: readonly ReadonlyMap<string, Slot>[];
  readonly arena: Slot['memory'];
  readonly scratch: Slot | undefined;
  readonly scratchBytes: number;
}

/** Scratch memory of one worker for all launches, in whole pages so that workers share none. */
export const scratchOf = (symbols: PlanSymbols): number =>
  Math.ceil(
    Math.max(
      0,
      ...Object.values(symbols)
        .flat(2)
        .map((symbol) => symbol.scratchBytes),
    ) / 4096,
  ) * 4096;

/** Binds one bucket. Throws if the plan is inconsistent; the addon checks every range again. */
export function bindBucket(request: BindRequest): ProgramBinding {
  const { fn, range } = request;
  if (request.symbols.length !== fn.launches.length)
    throw new Error(
      `${nameOf(fn)}, bucket ${request.bucket}: ${request.symbols.length} symbols for ${fn.launches.length} launches.`,
    );
  const bucket = fn.buckets[request.bucket];
  if (bucket === undefined) throw new Error(`${nameOf(fn)} has no bucket ${request.bucket}.`);
  const slots = new Slots(fn, request.arena, request.shared, 1);
  const writes = floatWrites(fn);
  const launches = fn.launches.slice(range.first, range.end).map(({ parameters }, at): LaunchBinding => {
    const i = range.first + at;
    const { library: named, symbol } = request.symbols[i]!;
    const library = request.libraries.get(named);
    if (library === undefined) throw new Error(`Launch ${i} of ${nameOf(fn)} has no library.`);
    return {
      name: kernelOf(fn, i).path,
      library,
      symbol,
      slots: parameters.map((name) => slots.of(name)),
      writes: writes[i]!.map(({ buffer, ...write }) => ({ slot: slots.of(buffer), ...write })),
    };
  });
  return {
    pool: request.pool,
    extents: programExtents(fn.interface, bucket.extents),
    scratchBytes: request.scratchBytes,
    ...defined({ scratch: request.scratch }),
    slots: slots.list,
    launches,
    inputs: stageInputs(fn, range).map((input) => portOf(fn, input, slots.of(input.buffer))),
    outputs: stageOutputs(fn, range).map((output) => portOf(fn, output, slots.of(output.buffer))),
  };
}
