/**
 * Memory for keys and values that models of an engine share: a budget for each device, beside weights and activations.
 */
import { availableMemory } from 'node:process';
import { type OpenedModel, rebuildOpened } from '../driver/compile/open.js';
import { roomFor } from '../driver/devices/placement.js';
import type { LoadRequest } from '../driver/requests.js';
import { MemoryBudget } from '../engine/memory.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { planWeights } from '../runtime/weightPlan.js';
import { defined } from '../system/defined.js';
import { otherBytesOf } from './cacheSize.js';

/** Tokens that a model has memory for before its budget gives it more. */
export const FIRST_TOKENS = 1024;
/** The rest is for the system, for what is allocated while kernels run, and for other programs. */
const HOST_SHARE = 0.9;
const DEVICE_SHARE = 0.95;

export interface MemoryOptions {
  /** Bytes for keys and values on each device. Default: what is left beside weights and activations. */
  readonly memory?: number | undefined;
  /** Shares of models in it, in the order in which they are loaded. Default: memory moves by itself. */
  readonly split?: readonly number[] | undefined;
}

type Placed = Pick<LoadRequest, 'model' | 'devices' | 'parallel'>;

/** Bytes that models on this device may still take. */
function freeBytes(opened: OpenedModel, request: Placed): number {
  const { model } = opened;
  const { devices } = model.target;
  // Rows of states take the memory of a host when they are used first.
  if (devices.isHost) return Math.max(0, HOST_SHARE * availableMemory() - otherBytesOf(model));
  const rebuild = rebuildOpened(request.model, opened);
  const visible = typeof request.devices === 'number' ? request.devices : 1;
  return DEVICE_SHARE * (devices.freeBytes?.(model.device, visible, rebuild) ?? roomFor(model, 1, 1, rebuild));
}

/** Bytes of a model beside keys and values. */
function weightBytes(opened: OpenedModel, { tensors }: Pick<Checkpoint, 'tensors'>): number {
  const { plan, target } = opened.model;
  const { packedBytes, mappedBytes } = planWeights(plan.weights, plan.constants, tensors);
  const arena = Math.max(...plan.functions.map(({ arenaBytes }) => arenaBytes));
  // A host reads mapped weights in place. A GPU holds a call's activations while the next one is prepared.
  if (target.devices.isHost) return packedBytes + arena;
  return packedBytes + mappedBytes + 2 * arena + otherBytesOf(opened.model);
}

export class ModelMemory {
  private readonly options: MemoryOptions;
  /** By target and replica. */
  private readonly budgets = new Map<string, MemoryBudget>();

  constructor(options: MemoryOptions = {}) {
    this.options = options;
  }

  /**
   * Has models that are loaded give up what the weights of another one need. Rejects with UserError where they need too
   * much themselves.
   */
  async makeRoom(opened: OpenedModel, checkpoint: Pick<Checkpoint, 'tensors'>, request: Placed): Promise<void> {
    const budgets = this.of(opened);
    if (budgets.length === 0) return;
    const missing = weightBytes(opened, checkpoint) - freeBytes(opened, request);
    if (missing <= 0) return;
    await Promise.all(budgets.map((budget) => budget.setBytes(budget.bytes - missing)));
  }

  /** The budget of a replica's device, once the model's weights are there. `replicas`: those of this model. */
  budgetOf(opened: OpenedModel, request: Placed, replica: number, replicas: number): MemoryBudget {
    const { target } = opened.model;
    const key = `${target.name} ${replica}`;
    let budget = this.budgets.get(key);
    if (budget === undefined) {
      const { memory, split } = this.options;
      const share = target.devices.isHost ? replicas : 1;
      const bytes = memory ?? Math.floor(freeBytes(opened, request) / share);
      budget = new MemoryBudget({ bytes, ...defined({ split }) });
      this.budgets.set(key, budget);
    }
    return budget;
  }

  private of({ model: { target } }: OpenedModel): readonly MemoryBudget[] {
    return [...this.budgets].flatMap(([key, budget]) => (key.startsWith(`${target.name} `) ? [budget] : []));
  }
}
