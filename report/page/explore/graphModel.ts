/** What a part of a stage is drawn as: its ops in groups, which are open or closed, and what flows between them. */
import { defined } from '../../../system/defined.js';
import type { Part, Sign, Stage, Unit, UnitInput, UnitOp } from '../../document/explore.js';

/** By what ops are grouped: the module of the model, or the kernel that computes them. */
const GROUPINGS = ['module', 'kernel'] as const;
export type Grouping = (typeof GROUPINGS)[number];

export interface OpGroup {
  /** Unique within the part. */
  readonly id: string;
  readonly title: string;
  /** The kernel, where ops are grouped by kernels. */
  readonly kernel?: number;
  /** Positions of its ops. */
  readonly ops: readonly number[];
  readonly counts: Readonly<Record<Exclude<Sign, ''>, number>>;
}

const countsOf = (ops: readonly UnitOp[]): OpGroup['counts'] => {
  const of = (sign: Sign): number => ops.filter((op) => op.sign === sign).length;
  return { '+': of('+'), '-': of('-'), '~': of('~') };
};

export const isChanged = ({ counts }: OpGroup): boolean => counts['+'] + counts['-'] + counts['~'] > 0;

/** `kernelTitle`: the title of one of the function's kernels. */
export function groupsOf(
  { ops }: Unit,
  grouping: Grouping,
  kernelTitle: (kernel: number) => string,
): readonly OpGroup[] {
  const groups = new Map<string, { title: string; kernel?: number; ops: number[] }>();
  ops.forEach(({ path, kernel, sign }, at) => {
    const isKernel = grouping === 'kernel' && kernel !== undefined;
    // What no kernel stores or computes alone is computed by all that read it.
    const isInline = grouping === 'kernel' && kernel === undefined && sign !== '-';
    const id = isKernel ? `kernel ${kernel}` : `${isInline ? 'inline ' : ''}${path}`;
    const module = path === '' ? 'other ops' : path;
    const group = groups.get(id) ?? {
      title: isKernel ? kernelTitle(kernel) : isInline ? `${module}, in its readers` : module,
      ...(isKernel ? { kernel } : {}),
      ops: [],
    };
    group.ops.push(at);
    groups.set(id, group);
  });
  return [...groups].map(([id, group]) => ({ id, ...group, counts: countsOf(group.ops.map((at) => ops[at]!)) }));
}

/** A box of a drawing. Ids of groups, ops and inputs differ by their first letter. */
export interface Box {
  readonly id: string;
  readonly kind: 'group' | 'op' | 'input' | 'output';
  readonly title: string;
  readonly detail: string;
  readonly sign: Sign;
  /** Of a group: its changes in signs. */
  readonly counts?: OpGroup['counts'];
  /** The open group around it. */
  readonly parent?: string;
  readonly op?: number;
  readonly group?: string;
  readonly kernel?: number;
  /** Names of the ops inside of an opened kernel. */
  readonly inside?: readonly string[];
}

export interface Flow {
  readonly from: string;
  readonly to: string;
  readonly isGone: boolean;
}

export interface Drawing {
  readonly boxes: readonly Box[];
  /** Open groups around boxes. */
  readonly frames: readonly { readonly id: string; readonly group: OpGroup }[];
  readonly flows: readonly Flow[];
}

/** The tail of a tensor's name, which says what it is. */
const tail = (name: string): string => name.replace(/^[%@]/, '').split('.').slice(-2).join('.');

function detailOf({ reads, type }: UnitOp, { inputs }: Unit): string {
  const weight = reads.map((at) => (at < 0 ? inputs[-1 - at] : undefined)).find((input) => input?.kind === 'weight');
  return weight === undefined ? type : `${type} · ${tail(weight.name)}`;
}

/** Ops with `counts` of a closed group as one sign: what it holds most of, if anything. */
const signOf = ({ counts }: OpGroup): Sign =>
  counts['~'] > 0 || (counts['+'] > 0 && counts['-'] > 0) ? '~' : counts['+'] > 0 ? '+' : counts['-'] > 0 ? '-' : '';

export interface DrawingOptions {
  readonly stage: Stage;
  readonly part: Part;
  readonly unit: Unit;
  readonly groups: readonly OpGroup[];
  /** Ids of groups, and at the level of kernels `k` and positions of ops, that are open. */
  readonly open: ReadonlySet<string>;
}

/** Weights stand with the ops that read them; literals would be as many as ops. */
const isDrawn = ({ kind, type }: UnitInput): boolean => kind !== 'weight' && !type.endsWith('[]');

/** Boxes and flows of a part. A group of one op is the op. At the level of kernels, each kernel is a box of its own. */
export function drawingOf({ stage, part, unit, groups, open }: DrawingOptions): Drawing {
  const boxes: Box[] = [];
  const frames: { id: string; group: OpGroup }[] = [];
  const boxOf = new Map<number, string>();
  const opBox = (at: number, parent?: string): void => {
    const op = unit.ops[at]!;
    const id = `o${at}`;
    boxOf.set(at, id);
    const isOpen = stage.level === 'kernels' && open.has(`k${at}`);
    boxes.push({
      id,
      kind: 'op',
      op: at,
      sign: op.sign,
      title: stage.level === 'kernels' ? op.path || op.name : op.op,
      detail: stage.level === 'kernels' ? `${op.op} → ${op.type}` : detailOf(op, unit),
      ...defined({ parent, kernel: op.kernel }),
      ...(isOpen ? { inside: op.fused ?? [] } : {}),
    });
  };
  for (const group of groups) {
    if (stage.level === 'kernels' || group.ops.length === 1) for (const at of group.ops) opBox(at);
    else if (open.has(group.id)) {
      const id = `f${group.id}`;
      frames.push({ id, group });
      for (const at of group.ops) opBox(at, id);
    } else {
      const id = `g${group.id}`;
      for (const at of group.ops) boxOf.set(at, id);
      const ops = group.ops.filter((at) => unit.ops[at]!.sign !== '-').length;
      boxes.push({
        id,
        kind: 'group',
        title: group.title,
        detail: ops === 1 ? '1 op' : `${ops} ops`,
        sign: signOf(group),
        counts: group.counts,
        group: group.id,
        ...defined({ kernel: group.kernel }),
      });
    }
  }
  const flows = new Map<string, Flow>();
  const flow = (from: string, to: string, isGone: boolean): void => {
    const key = `${from} ${to}`;
    if (from !== to && (!flows.has(key) || !isGone)) flows.set(key, { from, to, isGone });
  };
  const used = new Set<number>();
  unit.ops.forEach(({ reads, sign }, at) => {
    for (const read of reads) {
      const slot = -1 - read;
      if (read >= 0) flow(boxOf.get(read)!, boxOf.get(at)!, sign === '-');
      else if (isDrawn(unit.inputs[slot]!)) {
        used.add(slot);
        flow(`i${slot}`, boxOf.get(at)!, sign === '-');
      }
    }
  });
  for (const slot of [...used].sort((a, b) => a - b)) {
    const { name, type, kind } = unit.inputs[slot]!;
    const from = [...new Set(part.from[slot]!.map(([other]) => stage.parts[other]!.title))];
    const title = name.replace(/^%/, '');
    const detail = from.length > 0 ? `from ${from.join(', ')}` : kind === 'state' ? `state ${type}` : type;
    boxes.push({ id: `i${slot}`, kind: 'input', title, detail, sign: '' });
  }
  return { boxes, frames, flows: [...flows.values()] };
}

const NOUNS: Readonly<Record<Exclude<Sign, ''>, string>> = { '+': 'added', '-': 'removed', '~': 'changed' };

/** `16 added, 8 removed`; empty if nothing changed. */
export const changesText = (counts: OpGroup['counts']): string =>
  (['+', '-', '~'] as const)
    .filter((sign) => counts[sign] > 0)
    .map((sign) => `${counts[sign]} ${NOUNS[sign]}`)
    .join(', ');

/** `added`, for readers of an op; empty if it is as before. */
export const signText = (sign: Sign): string => (sign === '' ? '' : NOUNS[sign]);
/** As typography has it. */
export const signShown = (sign: Sign): string => (sign === '-' ? '−' : sign);
