/** Programs of both levels as lists of ops that name what they read: what the explorer compares and folds. */
import type { Graph } from '../../ir/graph/graph.js';
import { printNode, printValue } from '../../ir/graph/printer.js';
import type { KernelModule } from '../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../ir/kernelAccess.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { printType } from '../../ir/types.js';
import type { UnitInput } from '../document/explore.js';

/** A name that an op mentions, and the op that made what it stands for; undefined where it was given. */
export interface Mention {
  readonly name: string;
  readonly from: number | undefined;
}

export interface ProgramOp {
  /** Unique within its program, and kept by passes that leave it alone. */
  readonly id: string;
  readonly op: string;
  readonly path: string;
  readonly type: string;
  readonly text: string;
  /** All that is not a name: ops of equal forms that mention equal things are equal up to names. */
  readonly form: string;
  readonly mentions: readonly Mention[];
  /** Those that it reads, each once. */
  readonly reads: readonly Mention[];
  readonly fused?: readonly string[];
}

export interface Program {
  readonly ops: readonly ProgramOp[];
  /** What names stand for that no op makes. */
  readonly given: ReadonlyMap<string, Pick<UnitInput, 'kind' | 'type'>>;
}

/** Longer texts are literals: lists of frequencies. */
const MAX_TEXT = 600;
const cut = (text: string): string => (text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`);

const LAYER = /^layers\.(\d{1,6})(?:\.|$)/;

/** The layer that a module path lies in, and the path within it. */
export function placeOf(path: string): { readonly layer: number | undefined; readonly path: string } {
  const found = LAYER.exec(path);
  return found === null ? { layer: undefined, path } : { layer: Number(found[1]), path: path.slice(found[0].length) };
}

export function programOfGraph(graph: Graph): Program {
  const given = new Map<string, Pick<UnitInput, 'kind' | 'type'>>();
  for (const value of [...graph.params, ...graph.states, ...graph.weights])
    given.set(printValue(value), {
      kind: value.kind === 'result' ? 'value' : value.kind,
      type: printType(value.type),
    });
  const made = new Map(graph.nodes.map(({ result }, at) => [result, at]));
  const ops = graph.nodes.map((node): ProgramOp => {
    const mentions = node.inputs.map((value) => ({ name: printValue(value), from: made.get(value) }));
    const type = printType(node.result.type);
    return {
      id: node.result.name,
      op: node.op,
      path: node.path,
      type,
      text: cut(printNode(node)),
      form: JSON.stringify([node.op, node.attributes, type, placeOf(node.path).path]),
      mentions,
      reads: [...new Map(mentions.map((each) => [each.name, each])).values()],
    };
  });
  return { ops, given };
}

const WORD = /[A-Za-z_][A-Za-z0-9_]*/g;

export function programOfKernels(module: KernelModule): Program {
  const types = new Map<string, string>();
  const given = new Map<string, Pick<UnitInput, 'kind' | 'type'>>();
  for (const { name, dtype, rows, columns, space } of module.buffers) {
    types.set(name, `${dtype}[${rows}, ${columns}]`);
    const kind = space === 'weight' || space === 'state' ? space : 'param';
    given.set(name, { kind, type: `${dtype}[${rows}, ${columns}]` });
  }
  for (const { name, format, layout, sources, k } of module.weights) {
    const rows = sources.reduce((sum, source) => sum + source.rows, 0);
    types.set(name, `${layout} ${format}[${rows}, ${k}]`);
    given.set(name, { kind: 'weight', type: types.get(name)! });
  }
  const writer = new Map<string, number>();
  const ops = module.kernels.map((kernel, at): ProgramOp => {
    const reads = [...kernelReads(kernel)].map((name) => ({ name, from: writer.get(name) }));
    const writes = [...kernelWrites(kernel)];
    const before = new Map(writer);
    for (const name of writes) writer.set(name, at);
    const text = printKernel(kernel);
    const mentions: Mention[] = [];
    const withoutNames = text.replace(WORD, (word) => {
      if (word === kernel.name) return '_';
      const type = types.get(word);
      if (type === undefined) return word;
      mentions.push({ name: word, from: writes.includes(word) ? at : before.get(word) });
      return `_: ${type}`;
    });
    return {
      id: kernel.name,
      op: kernel.anchor,
      path: kernel.path,
      type: writes.map((name) => types.get(name) ?? '').join(', '),
      text,
      form: JSON.stringify([withoutNames, placeOf(kernel.path).path, kernel.ops]),
      mentions,
      reads,
      fused: kernel.ops,
    };
  });
  return { ops, given };
}
