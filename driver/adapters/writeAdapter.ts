/** Puts an adapter into a slot of a model that is loaded. */
import { setImmediate } from 'node:timers/promises';
import type { Plan } from '../../ir/plan.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import type { SlotWrite } from '../../runtime/weightPlan.js';
import { tensorValues } from '../tensorValues.js';
import { packAdapter, type PackedSlot, requireFits } from './pack.js';
import { slotsOf } from './slotsOf.js';

/** What an adapter is packed for. */
export interface PackTarget {
  readonly plan: Pick<Plan<unknown>, 'weights'>;
  /** Of the model's checkpoint: norm weights are folded into first factors. */
  readonly tensors: ReadonlyMap<string, TensorLocation>;
}

export interface SlotTarget extends PackTarget {
  readonly write: (writes: readonly SlotWrite[]) => Promise<void>;
}

/** Bytes that are written together: a device waits for the calls before each write. */
const TOGETHER_BYTES = 16 << 20;

/**
 * Packs all of a slot, and hands over what is written together. What else this thread has to do goes on between
 * weights. Rejects with UserError where the adapter does not fit the model, before anything was handed over.
 */
export async function packTogether(
  adapter: Adapter,
  { plan, tensors }: PackTarget,
  take: (packed: readonly PackedSlot[]) => Promise<void>,
): Promise<void> {
  requireFits(adapter, plan);
  const vectors = new Map<string, Float32Array>();
  const vectorOf = (name: string, k: number): Float32Array => {
    const known = vectors.get(name);
    if (known !== undefined) return known;
    const values = Float32Array.from(tensorValues(tensors, name, k).data);
    vectors.clear();
    vectors.set(name, values);
    return values;
  };
  let together: PackedSlot[] = [];
  let size = 0;
  for (const packed of packAdapter(adapter, plan, vectorOf)) {
    together.push(packed);
    size += packed.bytes.length;
    if (size >= TOGETHER_BYTES) {
      await take(together);
      [together, size] = [[], 0];
    }
    await setImmediate();
  }
  if (together.length > 0) await take(together);
}

/** Throws where a plan has no such slot. */
export function requireSlot(slot: number, plan: PackTarget['plan']): void {
  const slots = slotsOf(plan)?.slots ?? 0;
  if (!(Number.isInteger(slot) && slot >= 0 && slot < slots)) throw new RangeError(`slot ${slot} of ${slots}`);
}

/** What was packed, as it is written into a slot. */
export const writesOf = (packed: readonly PackedSlot[], slot: number): readonly SlotWrite[] =>
  packed.map(({ weight, bytes }) => ({ weight, slot, data: bytes }));

/** Writes all of a slot, one weight after another. Rejects with UserError, and then nothing was written. */
export async function writeAdapter(adapter: Adapter, slot: number, { write, ...target }: SlotTarget): Promise<void> {
  requireSlot(slot, target.plan);
  await packTogether(adapter, target, (packed) => write(writesOf(packed, slot)));
}
