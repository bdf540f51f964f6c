/** What a plan takes and gives: its inputs and outputs by name, and what its kernels write. */
import type { Kernel } from '../ir/kernel.js';
import { kernelWrites } from '../ir/kernelAccess.js';
import type { LinkedFunction } from '../ir/plan.js';
import type { PortBinding } from './addon.js';

/** What a runtime reads of a plan: schedules are for those who print code. */
export type RuntimePlan = Omit<LinkedFunction, 'schedules'>;

/** Inputs of the scoring function, in the order in which a run takes them. */
export const INPUTS = ['tokens', 'position', 'subtreeEnd', 'row', 'target'] as const;
export type InputName = (typeof INPUTS)[number];

/** Names of their buffers: kernel identifiers have no capitals. */
export const INPUT_BUFFERS: Readonly<Record<InputName, string>> = {
  tokens: 'tokens',
  position: 'position',
  subtreeEnd: 'subtree_end',
  row: 'row',
  target: 'target',
};

/** Which buffers a micro-batch goes to and its results come from. */
export interface Ports {
  /** Inputs that the plan reads; one that no kernel reads may be absent. */
  readonly inputs: readonly InputName[];
  readonly logProb: string;
  readonly isArgmax: string;
}

function outputOf(
  plan: RuntimePlan,
  dtype: 'f32' | 'i32',
  fromReduce: (kernel: Extract<Kernel, { anchor: 'logprobReduce' }>) => string,
): string {
  for (const kernel of plan.kernels) if (kernel.anchor === 'logprobReduce') return fromReduce(kernel);
  const outputs = plan.buffers.filter((buffer) => buffer.space === 'output' && buffer.dtype === dtype);
  if (outputs.length !== 1) throw new Error(`The plan has ${outputs.length} ${dtype} outputs; scoring takes one.`);
  return outputs[0]!.name;
}

export function portsOf(plan: RuntimePlan): Ports {
  const inputs = plan.buffers.filter((buffer) => buffer.space === 'input');
  const known: readonly string[] = Object.values(INPUT_BUFFERS);
  for (const { name, dtype } of inputs) {
    if (!known.includes(name) || dtype !== 'i32')
      throw new Error(`The plan has an input ${name} of ${dtype} that scoring does not provide.`);
  }
  return {
    inputs: INPUTS.filter((name) => inputs.some((buffer) => buffer.name === INPUT_BUFFERS[name])),
    logProb: outputOf(plan, 'f32', (kernel) => kernel.logProb),
    isArgmax: outputOf(plan, 'i32', (kernel) => kernel.isArgmax),
  };
}

export const extentOfInput = (name: InputName): string => (name === 'row' || name === 'target' ? 'R' : 'T');

/** A vector that a call copies in or out. */
export const vectorPort = (slot: number, rows: string, dtype: 'f32' | 'i32'): PortBinding => ({
  slot,
  dtype,
  rows,
  columns: 1,
  stride: 1,
});

/** Buffers in which −∞ is an answer: masks, and the parts of a log-sum-exp (a target outside its block). */
export function masksOf(plan: RuntimePlan): ReadonlySet<string> {
  const masks = new Set<string>();
  for (const kernel of plan.kernels) {
    if (kernel.anchor === 'logprob') masks.add(kernel.parts);
    if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias') masks.add(kernel.mask.buffer);
  }
  return masks;
}

/** Names of the floating buffers a kernel writes: the order of its WriteBindings. */
export function floatWrites(plan: RuntimePlan, kernel: Kernel): readonly string[] {
  const isFloat = (name: string): boolean => {
    const dtype = plan.buffers.find((buffer) => buffer.name === name)?.dtype;
    return dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';
  };
  return [...kernelWrites(kernel)].filter(isFloat);
}
