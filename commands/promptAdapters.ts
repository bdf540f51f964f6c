/** Adapters that prompts name one by one: which are read, and what slots a model needs for them. */
import type { NamedAdapter } from '../driver/requests.js';
import { UsageError, UserError } from '../errors.js';
import type { AdapterRef } from '../engine/device.js';
import type { NamedPrompt } from '../engine/prompts.js';
import { ADAPTER_RANK } from '../ir/adapterRows.js';
import { roundUp } from '../ir/types.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import { readAdapter } from './adapterReader.js';

/** Adapters that are computed with side by side at most. More of them take turns. */
export const MAX_SLOTS = 64;

/** An adapter as a prompt has it. */
export interface ChosenAdapter {
  readonly name: string;
  readonly ref: AdapterRef;
}

/** Either the whole model has one adapter, or prompts choose among several by name. */
export type AdapterPlan =
  | { readonly kind: 'none' }
  | { readonly kind: 'whole'; readonly adapter: NamedAdapter }
  | { readonly kind: 'byPrompt'; readonly used: readonly NamedAdapter[] };

/** Throws UsageError for names given twice, UserError for a name that no adapter has: it says which there are. */
export function planAdapters(given: readonly NamedAdapter[], prompts: readonly NamedPrompt[]): AdapterPlan {
  const byName = new Map(given.map((each) => [each.name, each]));
  const twice = given.find((each) => byName.get(each.name) !== each);
  if (twice !== undefined)
    throw new UsageError(
      `two adapters would be called ${JSON.stringify(twice.name)}`,
      'give them names: --adapter first=DIR --adapter second=DIR',
    );
  const used = new Map<string, NamedAdapter>();
  for (const { where, adapter } of prompts) {
    if (adapter === undefined) continue;
    const found = byName.get(adapter);
    if (found === undefined) throw unknownName(where, adapter, [...byName.keys()]);
    used.set(adapter, found);
  }
  if (used.size > 0) return { kind: 'byPrompt', used: [...used.values()] };
  const [only, ...more] = given;
  if (only === undefined) return { kind: 'none' };
  if (more.length > 0)
    throw new UsageError(
      `there are ${given.length} adapters, and no prompt names one`,
      'name one in each line that is to have it: {"prompt": "…", "adapter": ' + `${JSON.stringify(only.name)}}`,
    );
  return { kind: 'whole', adapter: only };
}

const MAX_SHOWN = 20;

function unknownName(where: string, name: string, names: readonly string[]): UserError {
  const shown = names.slice(0, MAX_SHOWN).join(', ') + (names.length > MAX_SHOWN ? ', …' : '');
  return new UserError(
    `${where}: there is no adapter ${JSON.stringify(name)}; ` +
      (names.length === 0 ? 'none is given' : `there ${names.length === 1 ? 'is' : 'are'}: ${shown}`),
    `give it: --adapter ${name}=DIR`,
  );
}

/** Adapters by name, as requests name them, and slots for all of them. `warn`: told what reading them warns of. */
export async function readChosen(
  model: string,
  used: readonly NamedAdapter[],
  warn: (line: string) => void,
): Promise<{ readonly refs: ReadonlyMap<string, AdapterRef>; readonly slots: AdapterSlots }> {
  const refs = new Map<string, AdapterRef>();
  const hashes = new Set<string>();
  let largest = 1;
  for (const { name, path: folder } of used) {
    const { hash, path, rank, warnings } = await readAdapter(model, folder);
    for (const line of warnings) warn(`adapter ${name}: ${line}`);
    refs.set(name, { hash, path, rank });
    hashes.add(hash);
    largest = Math.max(largest, rank);
  }
  return { refs, slots: { slots: Math.min(hashes.size, MAX_SLOTS), rank: roundUp(largest, ADAPTER_RANK) } };
}
