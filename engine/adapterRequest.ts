/** Whether a model can compute with the adapter that a request names. */
import { UsageError, UserError } from '../errors.js';
import type { AdapterRef, DeviceAdapters } from './device.js';

/** Throws UsageError where the model has no slots, or it is no reference; UserError where no slot can hold it. */
export function checkAdapter(
  { hash, path, rank = 0 }: AdapterRef,
  slots: Pick<DeviceAdapters, 'count' | 'rank'> | undefined,
  model: string,
): void {
  if (!/^[0-9a-f]{64}$/.test(hash))
    throw new UsageError(
      `adapter: ${JSON.stringify(hash)} is no hash of an adapter`,
      'give the hash that reading the adapter has found: 64 lower-case hexadecimal digits',
    );
  if (slots === undefined || slots.count < 1)
    throw new UsageError(
      `adapter: model ${JSON.stringify(model)} was opened without slots for adapters (${path})`,
      'open it with slots for adapters, or merge the adapter into a checkpoint of its own',
    );
  if (rank > slots.rank)
    throw new UserError(
      `adapter: ${path} has rank ${rank}; slots of model ${JSON.stringify(model)} hold rank ${slots.rank} at most`,
      `open the model with slots of rank ${rank}, or merge the adapter into a checkpoint of its own`,
    );
}
