/**
 * What the explorer's page shows: the program after every pass of each function, and the kernels that it became. Layers
 * that are equal up to names are there once, and so is every text.
 */

/** A value that ops of a unit read and none of them makes. */
export interface UnitInput {
  readonly name: string;
  readonly kind: 'value' | 'weight' | 'param' | 'state';
  readonly type: string;
}

/** `+`: the pass added it, `-`: took it out, `~`: changed it. */
export type Sign = '' | '+' | '-' | '~';

/** An op of a graph, or a kernel of a module. */
export interface UnitOp {
  readonly sign: Sign;
  /** Op or anchor. */
  readonly op: string;
  /** Of its result, or of the kernel. */
  readonly name: string;
  /** The module that it belongs to, without the layer: `attention.qkv`. */
  readonly path: string;
  readonly type: string;
  /** As `inspect --pass` prints it. */
  readonly text: string;
  /** Of a changed one: its text before. */
  readonly before?: string;
  /** Positions of the ops that it reads; of inputs −1 − position. */
  readonly reads: readonly number[];
  /** Names of the ops that a kernel holds. */
  readonly fused?: readonly string[];
  /** The kernel that computes it, among those of the function. */
  readonly kernel?: number;
}

/** A layer, or what lies before or behind the layers, as one of its kind has it. */
export interface Unit {
  readonly ops: readonly UnitOp[];
  readonly inputs: readonly UnitInput[];
}

/** Equal layers of a stage, or what lies outside of layers. */
export interface Part {
  /** Position among the document's units. */
  readonly unit: number;
  /** `layers 1–58`, `before the layers`. */
  readonly title: string;
  readonly count: number;
  /** For each input of the unit, the parts that make it, with the position of the op there; none for what is given. */
  readonly from: readonly (readonly (readonly [part: number, op: number])[])[];
}

export interface Stage {
  /** A second run of a pass is called `name.2`. */
  readonly name: string;
  readonly does: string;
  readonly reason: string;
  readonly level: 'graph' | 'kernels';
  /** Whether the pass gave another program than it was given. */
  readonly changed: boolean;
  /** Of the whole function, every layer counted: ops or kernels that there are, and how many of them changed how. */
  readonly ops: number;
  readonly added: number;
  readonly removed: number;
  readonly rewritten: number;
  readonly parts: readonly Part[];
}

/** An op within a kernel. */
export interface KernelOp {
  readonly op: string;
  readonly name: string;
  readonly path: string;
  readonly text: string;
}

export interface KernelOperand {
  readonly name: string;
  readonly type: string;
  readonly use: 'reads' | 'writes' | 'reads and writes';
  readonly space: string;
}

/** Lines of a source, from `first` to `last` counted from 0, that compute the ops. */
export type SourceSpan = readonly [first: number, last: number, ops: readonly number[]];

/** Kernels of one text. Figures are of one launch. */
export interface KernelEntry {
  /** Of the first: what addresses name. */
  readonly name: string;
  /** `layers.{0..6}.attention.qkv`. */
  readonly title: string;
  readonly path: string;
  readonly count: number;
  readonly anchor: string;
  readonly shape: string;
  readonly signature: string;
  readonly ops: readonly KernelOp[];
  /** Kernel IR. */
  readonly ir: string;
  readonly operands: readonly KernelOperand[];
  readonly flops: number;
  readonly bytes: number;
  /** By the roofline: the longer of arithmetic at peak and traffic at peak. */
  readonly seconds: number;
  /** By the model that ranks the tuner's candidates, with this schedule. */
  readonly predictedSeconds: number;
  /** Median of what the tuner measured with this schedule, in the bucket of this size of call. */
  readonly measuredSeconds?: number;
  readonly schedule: string;
  /** Schedules for other sizes of call: tokens, and the schedule. */
  readonly schedules: readonly (readonly [sizes: string, schedule: string])[];
  readonly symbol: string;
  /** Its paragraphs, as positions among the document's texts: lines that follow each other. */
  readonly source: readonly number[];
  readonly spans: readonly SourceSpan[];
  /**
   * What the source includes, itself or through another, and the positions of their texts: those that it names first.
   */
  readonly headers: readonly (readonly [name: string, text: number])[];
  /** What it takes of the machine, in words: shared memory, registers, scratch. */
  readonly resources: readonly (readonly [what: string, much: string])[];
}

/** The section `passes`: what every pass left of each function, and what it changed. */
export interface PassesDocument {
  readonly functions: readonly { readonly name: string; readonly stages: readonly Stage[] }[];
  readonly units: readonly Unit[];
}

/** Peaks of the machine, as the roofline takes them. */
export interface Roofline {
  /** What reaches them, and whether they were measured. */
  readonly name: string;
  readonly flopsPerSecond: number;
  readonly bytesPerSecond: number;
}

export interface FunctionKernels {
  readonly name: string;
  /** The size of call that costs and schedules are for. */
  readonly size: string;
  /** In order of their first launches. */
  readonly kernels: readonly KernelEntry[];
}

/** The section `kernels`: what each function launches. */
export interface KernelsDocument {
  /** The model and what it was compiled for: name and value, as `inspect` says them. */
  readonly facts: readonly (readonly [string, string])[];
  readonly language: 'C' | 'CUDA';
  readonly roofline: Roofline;
  readonly functions: readonly FunctionKernels[];
  /** Paragraphs of sources, and headers. */
  readonly texts: readonly string[];
}
