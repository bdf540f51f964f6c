/** A checkpoint with the adapter that all of it has, and adapters as devices are asked for them. */
import type { AdapterRef } from '../../engine/device.js';
import { UserError } from '../../errors.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import { openAdapter } from '../../models/adapters/open.js';
import { withAdapter } from '../../models/adapters/overlay.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { ADAPTER_RANK } from '../../ir/adapterRows.js';
import { roundUp } from '../../ir/types.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import { openModel } from '../functions.js';
import type { WeightInit } from '../names.js';

export interface AdaptedCheckpoint {
  /** The base, with tensors of the adapter in place of those that it replaces. */
  readonly checkpoint: Checkpoint;
  /** That of the base: an adapter is named beside it. */
  readonly fingerprint: () => string;
  /** The adapter of the whole model, if it has one. */
  readonly adapter: Adapter | undefined;
}

/** Opens a checkpoint, and the adapter in folder `adapterDir` that the whole model is to have. Throws UserError. */
export function openAdapted(
  path: string,
  init: WeightInit,
  { draftModel, adapterDir }: { readonly draftModel?: string | undefined; readonly adapterDir?: string | undefined },
): AdaptedCheckpoint {
  if (adapterDir === undefined) {
    const checkpoint = openModel(path, init, draftModel);
    return { checkpoint, fingerprint: () => checkpoint.fingerprint(), adapter: undefined };
  }
  let adapter: Adapter | undefined;
  let fingerprint = (): string => '';
  const adapt = (base: Checkpoint): Checkpoint => {
    fingerprint = () => base.fingerprint();
    const own = openAdapter(adapterDir, base);
    adapter = own;
    return own.replaced.length === 0 && own.model === base.model ? base : withAdapter(base, own);
  };
  return { checkpoint: openModel(path, init, draftModel, adapt), fingerprint: () => fingerprint(), adapter };
}

/** Opens an adapter that was named by its content. Throws UserError where the folder holds another by now. */
export function openRef(named: AdapterRef, base: Checkpoint): Adapter {
  const adapter = openAdapter(named.path, base);
  requireSame(named, adapter);
  return adapter;
}

/** Throws UserError where an adapter is not the one that was named. */
export function requireSame({ path, hash }: AdapterRef, adapter: Pick<Adapter, 'hash'> | undefined): void {
  if (adapter?.hash !== hash)
    throw new UserError(`${path}: this adapter has changed since it was named`, 'load it again as it is now');
}

/** Throws UserError where an adapter needs a model of its own, and cannot be chosen by request. */
export function requireRiding({ path, replaced }: Adapter): void {
  const [first] = replaced;
  if (first !== undefined)
    throw new UserError(
      `${path}: it replaces tensors of the base, as ${first}, and so needs a model of its own`,
      `open the base with it: --adapter ${path}; or merge it: tilewright merge-adapter`,
    );
}

/** Slots for one adapter that the whole model has; undefined where nothing of it rides. */
export const slotsForOne = ({ rank }: Pick<Adapter, 'rank'>): AdapterSlots | undefined =>
  rank === 0 ? undefined : { slots: 1, rank: roundUp(rank, ADAPTER_RANK) };
