/** The section on machines: what traces of runs say. Seconds are since the command began. */
import type { StartUp } from './start.js';
import type { TraceFacts, TraceMemory } from './trace.js';

/** What a track's slices are: those of others are shown as they are. */
const TRACK_KINDS = ['startup', 'critical', 'compute', 'copy', 'idle', 'kernel', 'other'] as const;
export type TrackKind = (typeof TRACK_KINDS)[number];

/** Slices one behind another, as columns: entry i of each is slice i. In order of their begin. */
export interface Track {
  /** `device 0`, `command`. */
  readonly process: string;
  readonly name: string;
  readonly kind: TrackKind;
  /** Microseconds. */
  readonly begin: readonly number[];
  readonly duration: readonly number[];
  /** Index into the trace's names. */
  readonly label: readonly number[];
  /** Columns of figures, where any slice of the track has one. */
  readonly figures: Readonly<Partial<Record<Figure, readonly (number | null)[]>>>;
}

export const FIGURES = ['tokens', 'rows', 'flops', 'bytes', 'shareOfPeak', 'batch', 'busySeconds', 'batches'] as const;
export type Figure = (typeof FIGURES)[number];

/** A device's whole run. */
export interface DeviceUse {
  readonly process: string;
  readonly slices: number;
  readonly computeSeconds: number;
  readonly copySeconds: number;
  readonly idleSeconds: number;
  readonly tokens: number;
  readonly flops: number | null;
}

/** Kernels that differ in their layer alone, over all launches that were timed one by one. */
export interface KernelUse {
  /** `layers.*.ffn.down`. */
  readonly path: string;
  readonly anchor: string;
  readonly launches: number;
  readonly seconds: number;
  /** Null where the trace says nothing of its work. */
  readonly flops: number | null;
  readonly bytes: number | null;
  /** Weighted by time. */
  readonly shareOfPeak: number | null;
}

export interface Phase {
  readonly process: string;
  readonly name: string;
  /** Seconds. */
  readonly begin: number;
  readonly end: number;
}

/** Weights that were loaded one by one: how many, and those that took longest. */
export interface WeightLoads {
  readonly count: number;
  readonly bytes: number;
  readonly seconds: number;
  readonly longest: readonly { readonly name: string; readonly seconds: number; readonly bytes: number }[];
}

export interface TraceView {
  /** The file's name. */
  readonly file: string;
  /** Absent for traces of earlier versions and of other programs. */
  readonly about?: Pick<TraceFacts, 'version' | 'model' | 'isa' | 'arithmetic' | 'replicas' | 'stages'>;
  readonly peaks?: TraceFacts['peaks'];
  readonly names: readonly string[];
  readonly tracks: readonly Track[];
  readonly devices: readonly DeviceUse[];
  readonly phases: readonly Phase[];
  /** What the first answer waited for; absent for traces of earlier versions. */
  readonly start?: StartUp;
  readonly loads?: WeightLoads;
  readonly kernels: readonly KernelUse[];
  /** With the paths of its launches. */
  readonly memory?: TraceMemory & { readonly launches: readonly string[] };
}

export interface MachineDocument {
  readonly traces: readonly TraceView[];
}
