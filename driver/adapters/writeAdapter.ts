/** Puts an adapter into a slot of a model that is loaded. */
import { setImmediate } from 'node:timers/promises';
import type { Plan } from '../../ir/plan.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import type { SlotWrite } from '../../runtime/weightPlan.js';
import { tensorValues } from '../tensorValues.js';
import { packAdapter, requireFits } from './pack.js';
import { slotsOf } from './slotsOf.js';

export interface SlotTarget {
  readonly plan: Pick<Plan<unknown>, 'weights'>;
  /** Of the model's checkpoint: norm weights are folded into first factors. */
  readonly tensors: ReadonlyMap<string, TensorLocation>;
  readonly write: (writes: readonly SlotWrite[]) => Promise<void>;
}

/** Bytes that are written together: a device waits for the calls before each write. */
const TOGETHER_BYTES = 16 << 20;

/**
 * Writes all of a slot, one weight after another; what else this thread has to do goes on between them. Rejects with
 * UserError where the adapter does not fit the model, and then nothing was written.
 */
export async function writeAdapter(
  adapter: Adapter,
  slot: number,
  { plan, tensors, write }: SlotTarget,
): Promise<void> {
  const slots = slotsOf(plan)?.slots ?? 0;
  if (!(Number.isInteger(slot) && slot >= 0 && slot < slots)) throw new RangeError(`slot ${slot} of ${slots}`);
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
  let together: SlotWrite[] = [];
  let size = 0;
  for (const { weight, bytes } of packAdapter(adapter, plan, vectorOf)) {
    together.push({ weight, slot, data: bytes });
    size += bytes.length;
    if (size >= TOGETHER_BYTES) {
      await write(together);
      [together, size] = [[], 0];
    }
    await setImmediate();
  }
  if (together.length > 0) await write(together);
}
