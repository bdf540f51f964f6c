/** Where a plan's memory goes: the arena over time, the states and the weights. */
import type { StateDecl } from '../ir/function.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { leadingExtent, type LinkedFunction, stateBytes } from '../ir/plan.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { planWeights } from '../runtime/weightPlan.js';

/** Buffers that share one place in the arena at different times. */
export interface ArenaSlot {
  readonly offset: number;
  readonly sizeBytes: number;
  /** In order of first use. */
  readonly buffers: readonly string[];
  /** Launches, first and last inclusive, during which one of the buffers is live. Ascending and disjoint. */
  readonly alive: readonly (readonly [first: number, last: number])[];
}

export interface MemoryReport {
  /** Of the first extent: the largest call, and what it counts. */
  readonly capacity: { readonly most: number; readonly counts: string };
  readonly launches: number;
  readonly arenaBytes: number;
  /** Bytes of all buffers without sharing. */
  readonly withoutReuseBytes: number;
  /** Sorted by offset. */
  readonly slots: readonly ArenaSlot[];
  /** Memory that outlives calls, which all functions of the plan share. */
  readonly states: readonly (StateDecl & { readonly sizeBytes: number })[];
  /** Absent if the checkpoint is not available. */
  readonly weights: { readonly mappedBytes: number; readonly packedBytes: number } | undefined;
}

/** First and last launch that uses each arena buffer. Inputs and outputs live throughout. */
function lifetimes(plan: LinkedFunction<unknown>): ReadonlyMap<string, readonly [number, number]> {
  const range = new Map<string, [number, number]>();
  plan.kernels.forEach((kernel, at) => {
    for (const name of [...kernelReads(kernel), ...kernelWrites(kernel)]) {
      const known = range.get(name);
      if (known === undefined) range.set(name, [at, at]);
      else known[1] = at;
    }
  });
  const end = plan.kernels.length - 1;
  for (const { name, space } of plan.buffers) if (space === 'input' || space === 'output') range.set(name, [0, end]);
  return range;
}

/** A buffer's place in the arena, and the launches that need it, first and last inclusive. */
export interface ArenaBuffer {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

/** In the order of the plan. */
export function arenaBuffers(plan: LinkedFunction<unknown>): readonly ArenaBuffer[] {
  const alive = lifetimes(plan);
  const end = plan.kernels.length - 1;
  return plan.placements.map(({ buffer, offset, sizeBytes }) => {
    const [first, last] = alive.get(buffer) ?? [0, end];
    return { name: buffer, offset, bytes: sizeBytes, first, last };
  });
}

/** Weights as they are stored for kernels, and those that stay in the checkpoint's files. */
export function weightBytes(
  plan: LinkedFunction<unknown>,
  checkpoint: Checkpoint | undefined,
): MemoryReport['weights'] {
  if (checkpoint === undefined) return undefined;
  const { mappedBytes, packedBytes } = planWeights(plan.weights, plan.constants, checkpoint.tensors);
  return { mappedBytes, packedBytes };
}

/** Joins ranges that touch or overlap. */
function merge(sorted: readonly (readonly [number, number])[]): readonly (readonly [number, number])[] {
  const merged: [number, number][] = [];
  for (const [first, last] of sorted) {
    const before = merged.at(-1);
    if (before !== undefined && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else merged.push([first, last]);
  }
  return merged;
}

export function memoryReport(plan: LinkedFunction<unknown>, checkpoint: Checkpoint | undefined): MemoryReport {
  const { most, counts } = leadingExtent(plan);
  const slots = new Map<
    string,
    { offset: number; sizeBytes: number; buffers: { name: string; life: readonly [number, number] }[] }
  >();
  for (const { name, offset, bytes: sizeBytes, first, last } of arenaBuffers(plan)) {
    const key = `${offset} ${sizeBytes}`;
    const slot = slots.get(key) ?? { offset, sizeBytes, buffers: [] };
    slot.buffers.push({ name, life: [first, last] });
    slots.set(key, slot);
  }
  return {
    capacity: { most, counts },
    launches: plan.kernels.length,
    arenaBytes: plan.arenaBytes,
    withoutReuseBytes: plan.placements.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    slots: [...slots.values()]
      .sort((a, b) => a.offset - b.offset || a.sizeBytes - b.sizeBytes)
      .map(({ offset, sizeBytes, buffers }) => {
        const ordered = buffers.sort((a, b) => a.life[0] - b.life[0]);
        return {
          offset,
          sizeBytes,
          buffers: ordered.map(({ name }) => name),
          alive: merge(ordered.map(({ life }) => life)),
        };
      }),
    states: plan.states.map((state) => ({ ...state, sizeBytes: stateBytes(state) })),
    weights: weightBytes(plan, checkpoint),
  };
}
