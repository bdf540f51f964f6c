/** The stages of a function: what every pass left, and what it changed. */
import type { Graph } from '../../ir/graph/graph.js';
import type { KernelModule } from '../../ir/kernel.js';
import { defined } from '../../system/defined.js';
import type { Part, Sign, Stage, Unit, UnitInput, UnitOp } from '../document/explore.js';
import { type Mention, placeOf, type Program, programOfGraph, programOfKernels, type ProgramOp } from './program.js';

/** A stage as the compiler recorded it. */
export type RecordedProgram = Pick<Stage, 'name' | 'does' | 'reason' | 'changed'> &
  ({ readonly level: 'graph'; readonly graph: Graph } | { readonly level: 'kernels'; readonly module: KernelModule });

const programOf = (stage: RecordedProgram): Program =>
  stage.level === 'graph' ? programOfGraph(stage.graph) : programOfKernels(stage.module);

/**
 * The stages of one function, in order. `kernelOf`: the kernel, of those that the function has in the end, that
 * computes the op of a name.
 */
export function exploreStages(
  recorded: readonly RecordedProgram[],
  pool: Pool<Unit>,
  kernelOf: (name: string, level: Stage['level']) => number | undefined,
): readonly Stage[] {
  let last: { readonly level: Stage['level']; readonly program: Program } | undefined;
  const lastGraph = recorded.findLastIndex(({ level }) => level === 'graph');
  return recorded.map((stage, at) => {
    const { name, does, reason, level, changed } = stage;
    const program = changed || last === undefined ? programOf(stage) : last.program;
    const entries =
      last === undefined || last.level !== level || !changed ? unchanged(program) : changes(last.program, program);
    last = { level, program };
    // Names mean ops of the final graph, and kernels of the final module.
    const isFinal = at === lastGraph || level === 'kernels';
    const own = (entry: Entry): number | undefined =>
      entry.sign === '-' || !isFinal ? undefined : kernelOf(entry.id, level);
    const signed = (sign: Entry['sign']): number => entries.filter((entry) => entry.sign === sign).length;
    return {
      name,
      does,
      reason,
      level,
      changed,
      ops: program.ops.length,
      added: signed('+'),
      removed: signed('-'),
      rewritten: signed('~'),
      parts: fold(entries, { given: program.given, pool, kernelOf: own }),
    };
  });
}

/** What a pass changed: the ops of two programs matched with each other, in one list. */

/** An op of the program after a pass, or one that the pass took out; it mentions positions in the same list. */
export interface Entry extends Omit<ProgramOp, 'mentions' | 'reads'> {
  readonly sign: Sign;
  readonly before?: string;
  readonly mentions: readonly Mention[];
  readonly reads: readonly Mention[];
}

/** A program that no pass was given: nothing of it has changed. */
export const unchanged = ({ ops }: Program): readonly Entry[] => ops.map((op) => ({ ...op, sign: '' }));

/** For each op of `next`, the position of the op of `last` that it was. */
function match(last: Program, next: Program): ReadonlyMap<number, number> {
  const found = new Map<number, number>();
  const byId = new Map(last.ops.map((op, at) => [op.id, at]));
  next.ops.forEach((op, at) => {
    const was = byId.get(op.id);
    if (was !== undefined && last.ops[was]!.op === op.op) found.set(at, was);
  });
  // What is left may have another name: it is the same if it has the same form and mentions the same things.
  const taken = new Set(found.values());
  const keyOf = ({ form, path, mentions }: ProgramOp, positionOf: (at: number) => number | undefined): string =>
    JSON.stringify([form, path, mentions.map(({ name, from }) => (from === undefined ? name : positionOf(from)))]);
  const free = new Map<string, number[]>();
  last.ops.forEach((op, at) => {
    if (taken.has(at)) return;
    const key = keyOf(op, (from) => from);
    const list = free.get(key);
    if (list === undefined) free.set(key, [at]);
    else list.push(at);
  });
  if (free.size === 0) return found;
  next.ops.forEach((op, at) => {
    if (found.has(at)) return;
    const was = free.get(keyOf(op, (from) => found.get(from) ?? -1 - from))?.shift();
    if (was !== undefined) found.set(at, was);
  });
  return found;
}

/** The ops of `next` with signs, and between them those of `last` that are gone, each behind what it stood behind. */
export function changes(last: Program, next: Program): readonly Entry[] {
  const was = match(last, next);
  const is = new Map([...was].map(([now, then]) => [then, now]));
  /** Positions in `last` of what is gone, by the position in `next` behind which it stands. */
  const gone = new Map<number, number[]>();
  let behind = -1;
  last.ops.forEach((_, at) => {
    const now = is.get(at);
    if (now !== undefined) behind = now;
    else gone.set(behind, [...(gone.get(behind) ?? []), at]);
  });
  const order: { readonly from: 'last' | 'next'; readonly at: number }[] = [];
  for (let now = -1; now < next.ops.length; now++) {
    if (now >= 0) order.push({ from: 'next', at: now });
    for (const at of gone.get(now) ?? []) order.push({ from: 'last', at });
  }
  const place = new Map(order.map(({ from, at }, i) => [`${from} ${at}`, i]));
  const placeOf = (from: 'last' | 'next', at: number): number =>
    place.get(from === 'last' && is.has(at) ? `next ${is.get(at)!}` : `${from} ${at}`)!;
  return order.map(({ from, at }): Entry => {
    const op = (from === 'next' ? next : last).ops[at]!;
    const moved = ({ name, from: made }: Mention): Mention => ({
      name,
      from: made === undefined ? undefined : placeOf(from, made),
    });
    const then = from === 'next' ? was.get(at) : undefined;
    const before = then === undefined ? undefined : last.ops[then]!;
    const isChanged = before !== undefined && before.id === op.id && before.text !== op.text;
    return {
      ...op,
      sign: from === 'last' ? '-' : before === undefined ? '+' : isChanged ? '~' : '',
      ...(isChanged ? { before: before.text } : {}),
      mentions: op.mentions.map(moved),
      reads: op.reads.map(moved),
    };
  });
}

/** Layers that are equal up to names, once: entries of a stage as units of a few kinds. */

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
