/** Memory that a model needs and does not get, and who has it. */
import { UserError } from '../errors.js';
import { bytes as sizeOf } from '../system/text.js';

interface Shortage {
  /** `device memory`, `memory` */
  readonly of: string;
  readonly neededBytes: number;
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** A model does not fit into what is free. */
export class MemoryShortage extends UserError {
  readonly shortage: Shortage;

  constructor(shortage: Shortage, message: string, hint: string, options?: ErrorOptions) {
    super(message, hint, options);
    this.shortage = shortage;
  }
}

/** Memory of a model that is loaded. */
export interface Holding {
  /** The model's name. */
  readonly name: string;
  readonly bytes: number;
}

/** The error for a model that does not fit beside others, in one line; its hint says what would fit. */
export function shortBeside(name: string, { shortage, cause }: MemoryShortage, beside: readonly Holding[]): UserError {
  const { of, neededBytes, freeBytes, totalBytes } = shortage;
  const held = beside.map((each) => `${each.name} holds ${sizeOf(each.bytes)}`).join(', ');
  const missing = neededBytes - freeBytes;
  const enough = beside.toSorted((a, b) => a.bytes - b.bytes).find(({ bytes }) => bytes >= missing);
  return new UserError(
    `${name} needs ${sizeOf(neededBytes)} of ${of}, of which ${sizeOf(freeBytes)} are free: ${held}`,
    neededBytes > totalBytes
      ? `${name} does not fit by itself either: spread it over several devices, or use one with more memory`
      : `${sizeOf(missing)} are missing: unload ${enough?.name ?? 'others'}, or open them with fewer --cache-tokens`,
    { cause },
  );
}
