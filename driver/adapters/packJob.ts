/** What a thread that reads and packs adapters is told, and what it says. */
import type { AdapterRef } from '../../engine/device.js';
import type { WeightDecl } from '../../ir/kernel.js';
import type { WeightInit } from '../names.js';
import type { PackedSlot } from './pack.js';

/** How a base is opened, by any thread. */
export interface BaseSource {
  readonly path: string;
  readonly init: WeightInit;
  readonly draftModel?: string | undefined;
}

/** What a thread begins with: its base, and the weights of the plan that have slots. */
export interface PackSetting {
  readonly base: BaseSource;
  readonly weights: readonly WeightDecl[];
}

export type ToPacker =
  | { readonly kind: 'pack'; readonly id: number; readonly named: AdapterRef }
  /** What was packed is written: the rest of it may come. */
  | { readonly kind: 'more'; readonly id: number };

export type FromPacker = { readonly id: number } & (
  | { readonly kind: 'packed'; readonly packed: readonly PackedSlot[] }
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: string; readonly hint?: string | undefined; readonly isUser: boolean }
);
