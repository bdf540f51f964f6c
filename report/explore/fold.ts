/** Layers that are equal up to names, once: entries of a stage as units of a few kinds. */
import { defined } from '../../system/defined.js';
import type { Part, Unit, UnitInput, UnitOp } from '../document/explore.js';
import type { Entry } from './changes.js';
import { placeOf, type Program } from './program.js';

/** Things that are kept once, by a text that two of them share where they are equal. */
export class Pool<T> {
  readonly all: T[] = [];
  private readonly at = new Map<string, number>();

  /** The position of what has this key; `make` makes it where it is new. */
  put(key: string, make: () => T): number {
    let found = this.at.get(key);
    if (found === undefined) {
      found = this.all.push(make()) - 1;
      this.at.set(key, found);
    }
    return found;
  }
}

/** A layer, or what lies outside of layers. */
interface Instance {
  readonly layer: number | undefined;
  readonly title: string;
  /** Positions of its entries. */
  readonly at: readonly number[];
}

/** Instances in order. A module outside of layers lies before them if it begins before they do. */
function instancesOf(entries: readonly Entry[]): readonly Instance[] {
  const places = entries.map(({ path }) => placeOf(path));
  const first = places.findIndex(({ layer }) => layer !== undefined);
  const early = new Set(places.slice(0, Math.max(first, 0)).map(({ path }) => path.split('.')[0]!));
  const before: number[] = [];
  const behind: number[] = [];
  const layers = new Map<number, number[]>();
  places.forEach(({ layer, path }, at) => {
    if (layer === undefined) (early.has(path.split('.')[0]!) ? before : behind).push(at);
    else layers.set(layer, [...(layers.get(layer) ?? []), at]);
  });
  const outside = (title: string, at: readonly number[]): Instance[] =>
    at.length === 0 ? [] : [{ layer: undefined, title, at }];
  return [
    ...outside('before the layers', before),
    ...[...layers].sort(([a], [b]) => a - b).map(([layer, at]) => ({ layer, title: '', at })),
    ...outside(layers.size === 0 ? 'the function' : 'behind the layers', behind),
  ];
}

/** What an instance is, up to names. */
function describe(
  { at }: Instance,
  entries: readonly Entry[],
  given: Program['given'],
  kernelOf: (entry: Entry) => number | undefined,
): { readonly key: string; readonly inputs: readonly { readonly name: string; readonly from: number | undefined }[] } {
  const local = new Map(at.map((position, i) => [position, i]));
  const slots = new Map<string, number>();
  const inputs: { name: string; from: number | undefined }[] = [];
  const words = at.map((position) => {
    const entry = entries[position]!;
    const mentions = entry.mentions.map(({ name, from }) => {
      const own = from === undefined ? undefined : local.get(from);
      if (own !== undefined) return own;
      let slot = slots.get(name);
      if (slot === undefined) {
        slot = inputs.push({ name, from }) - 1;
        slots.set(name, slot);
      }
      return -1 - slot;
    });
    const before = entry.before?.replace(/\d+/g, '#');
    return [entry.form, entry.sign, before, entry.type, kernelOf(entry) ?? -1, mentions];
  });
  // The first layer may read a parameter where the others read what the layer before them made.
  const kinds = inputs.map(({ name, from }) => {
    if (from !== undefined) return entries[from]!.type;
    const found = given.get(name);
    return found === undefined || found.kind === 'param' ? (found?.type ?? '') : `${found.kind} ${found.type}`;
  });
  return { key: JSON.stringify([words, kinds]), inputs };
}

/** `0–6`, `0, 2, 4, …, 40`, `1, 2, 5`. */
export function ranges(numbers: readonly number[]): string {
  const [first = 0, second = 0] = numbers;
  const last = numbers.at(-1) ?? 0;
  const step = second - first;
  const isRegular = numbers.length > 3 && numbers.every((each, i) => each === first + i * step);
  if (isRegular && step > 1) return `${first}, ${second}, …, ${last}`;
  const runs: string[] = [];
  for (let i = 0; i < numbers.length;) {
    let end = i;
    while (numbers[end + 1] === numbers[end]! + 1) end++;
    runs.push(
      end === i
        ? `${numbers[i]!}`
        : end === i + 1
          ? `${numbers[i]!}, ${numbers[end]!}`
          : `${numbers[i]!}–${numbers[end]!}`,
    );
    i = end + 1;
  }
  return runs.join(', ');
}

export interface FoldOptions {
  readonly given: Program['given'];
  readonly pool: Pool<Unit>;
  /** The kernel that computes an op, where that is known. */
  readonly kernelOf?: (entry: Entry) => number | undefined;
}

/** The parts of a stage, in order of their first layers. */
export function fold(
  entries: readonly Entry[],
  { given, pool, kernelOf = () => undefined }: FoldOptions,
): readonly Part[] {
  const kinds = new Map<string, { readonly unit: number; readonly members: Instance[] }>();
  const partAt: { part: number; op: number }[] = [];
  const inputsOf = new Map<Instance, readonly { readonly from: number | undefined }[]>();
  for (const instance of instancesOf(entries)) {
    const { key, inputs } = describe(instance, entries, given, kernelOf);
    inputsOf.set(instance, inputs);
    const ownKey = instance.layer === undefined ? `${instance.title} ${key}` : key;
    const known = kinds.get(ownKey);
    if (known !== undefined) known.members.push(instance);
    else {
      const unit = pool.put(key, () => unitOf(instance, entries, inputs, given, kernelOf));
      kinds.set(ownKey, { unit, members: [instance] });
    }
  }
  const parts = [...kinds.values()];
  parts.forEach(({ members }, part) => {
    for (const { at } of members) at.forEach((position, op) => (partAt[position] = { part, op }));
  });
  return parts.map(({ unit, members }) => {
    const [first] = members;
    const layers = members.flatMap(({ layer }) => (layer === undefined ? [] : [layer]));
    const title = layers.length === 0 ? first!.title : `${layers.length === 1 ? 'layer' : 'layers'} ${ranges(layers)}`;
    const from = inputsOf.get(first!)!.map((_, slot) => {
      const places = members.flatMap((member) => {
        const made = inputsOf.get(member)![slot]!.from;
        return made === undefined ? [] : [partAt[made]!];
      });
      const once = new Map(places.map(({ part, op }) => [`${part} ${op}`, [part, op] as const]));
      return [...once.values()];
    });
    return { unit, title, count: members.length, from };
  });
}

function unitOf(
  { at }: Instance,
  entries: readonly Entry[],
  inputs: readonly { readonly name: string; readonly from: number | undefined }[],
  given: Program['given'],
  kernelOf: (entry: Entry) => number | undefined,
): Unit {
  const local = new Map(at.map((position, i) => [position, i]));
  const slots = new Map(inputs.map(({ name }, slot) => [name, -1 - slot]));
  return {
    ops: at.map((position): UnitOp => {
      const entry = entries[position]!;
      const { sign, op, id, path, type, text, before, fused, reads } = entry;
      const kernel = kernelOf(entry);
      const read = reads.map(({ name, from }) => (from === undefined ? undefined : local.get(from)) ?? slots.get(name));
      return {
        sign,
        op,
        name: id,
        path: placeOf(path).path,
        type,
        text,
        ...defined({ before }),
        reads: read.filter((each) => each !== undefined),
        ...defined({ fused, kernel }),
      };
    }),
    inputs: inputs.map(({ name, from }): UnitInput => {
      if (from !== undefined) return { name, kind: 'value', type: entries[from]!.type };
      return { name, ...(given.get(name) ?? { kind: 'value', type: '' }) };
    }),
  };
}
