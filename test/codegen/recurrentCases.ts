/** Modules of a links and a scan kernel over made-up trees, for any target. */
import type { KernelModule } from '../../ir/kernel.js';
import type { ScanRule } from '../../ir/scan.js';
import type { DType } from '../../ir/types.js';

export interface ScanCase {
  readonly rule: ScanRule;
  readonly mask: 'column' | 'path';
  readonly keyHeads: number;
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly dtype?: DType;
  readonly epsilon?: number;
  readonly scale?: number;
  readonly hasSkip?: boolean;
  readonly takesTurns?: true;
  /** Trees go on from rows of states, and write some. */
  readonly isKept?: boolean;
  /** Rows of states. Default: STATES. */
  readonly states?: number;
}

/** Rows of states. */
export const STATES = 5;

/** The row above each row, −1 for none, in depth-first order. `depth`: of a chain of rows where paths part. */
export function madeUpTrees(rows: number, seed: number, partsAt = 3): readonly number[] {
  const parents: number[] = [];
  let state = seed;
  const next = (below: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % below;
  };
  for (let row = 0; row < rows; row++) {
    const path: number[] = [];
    for (let at = row - 1; at >= 0; at = parents[at]!) path.push(at);
    const choice = next(12);
    if (row === 0 || choice === 0) parents.push(-1);
    else parents.push(choice <= partsAt ? path[next(path.length)]! : row - 1);
  }
  return parents;
}

/** Inputs that say which rows lie above which: both forms. */
export function treeInputs(parents: readonly number[]): ReadonlyMap<string, Float64Array> {
  const rows = parents.length;
  const position = parents.map(() => 0);
  const end = parents.map((_, row) => row + 1);
  parents.forEach((parent, row) => (position[row] = parent < 0 ? 0 : position[parent]! + 1));
  for (let row = rows - 1; row >= 0; row--)
    for (let at = parents[row]!; at >= 0; at = parents[at]!) end[at] = Math.max(end[at]!, row + 1);
  const [begin, key]: [number[], number[]] = [[], []];
  parents.forEach((_, row) => {
    begin.push(key.length);
    const path: number[] = [];
    for (let at = row; at >= 0; at = parents[at]!) path.unshift(at);
    key.push(...path);
  });
  return new Map(
    Object.entries({ position, subtree_end: end, begin, key }).map(([name, list]) => [name, Float64Array.from(list)]),
  );
}

export function scanModule(own: ScanCase): KernelModule {
  const {
    rule,
    mask,
    keyHeads,
    heads,
    keyDim,
    valueDim,
    dtype = 'f32',
    epsilon,
    scale,
    hasSkip,
    takesTurns,
    isKept = false,
    states = STATES,
  } = own;
  const input = (name: string, type: DType, columns: number, rows = 'T') =>
    ({ name, dtype: type, rows, columns, space: 'input' }) as const;
  const arena = (name: string) => ({ name, dtype: 'i32', rows: 'T', columns: 1, space: 'arena' }) as const;
  const isPath = mask === 'path';
  const inputs = [
    ...(isPath
      ? [input('begin', 'i32', 1), input('position', 'i32', 1), input('key', 'i32', 1, 'C')]
      : [input('subtree_end', 'i32', 1)]),
    input('q', dtype, keyHeads * keyDim),
    input('k', dtype, keyHeads * keyDim),
    input('v', dtype, heads * valueDim),
    input('decay', 'f32', heads),
    input('beta', 'f32', heads),
    ...(isKept ? ['from', 'to', 'also'].map((name) => input(name, 'i32', 1)) : []),
  ];
  const state = { name: 'state', dtype: 'f32', rows: states, columns: heads * keyDim * valueDim } as const;
  const roles = {
    begin: { kind: 'row', of: 'C' },
    position: { kind: 'depth' },
    key: { kind: 'row', of: 'T' },
    subtree_end: { kind: 'subtreeEnd' },
    from: { kind: 'entryOrNone', state: 'state' },
    to: { kind: 'slot', state: 'state' },
    also: { kind: 'slot', state: 'state' },
  } as const;
  const end = isPath ? 'ends' : 'subtree_end';
  return {
    interface: {
      name: 'score',
      extents: (isPath ? ['T', 'C', 'R'] : ['T', 'R']).map((name) => ({ name })),
      inputs: inputs.map(({ name, dtype: type, rows, columns }) => ({
        name,
        buffer: name,
        dtype: type,
        shape: columns === 1 ? [rows] : [rows, columns],
        role: Object.hasOwn(roles, name) ? roles[name as keyof typeof roles] : { kind: 'values' },
      })),
      outputs: [{ name: 'out', buffer: 'out', dtype: 'f32', shape: ['T', heads * valueDim] }],
      takes: isKept ? ['state'] : [],
      gives: isKept ? ['state'] : [],
    },
    ...(isKept ? { states: [state] } : {}),
    buffers: [
      ...inputs,
      ...(isKept ? [{ ...state, space: 'state' } as const] : []),
      ...['before_1', 'before_3'].map(arena),
      ...(isPath ? [arena('ends')] : []),
      ...(hasSkip === true ? [{ name: 'skip', dtype: 'f32', rows: heads, columns: 1, space: 'weight' } as const] : []),
      { name: 'out', dtype: 'f32', rows: 'T', columns: heads * valueDim, space: 'output' },
    ],
    weights:
      hasSkip === true
        ? [
            {
              name: 'skip',
              layout: 'rows',
              format: 'f32',
              sources: [{ tensor: 'd', rows: heads }],
              k: 1,
              pairing: { kind: 'none' },
            },
          ]
        : [],
    kernels: [
      {
        name: 'links',
        path: 'prepare',
        ops: ['token_before'],
        rows: 'T',
        anchor: 'links',
        paths: isPath
          ? { kind: 'path', begin: 'begin', position: 'position', key: 'key' }
          : { kind: 'column', subtreeEnd: 'subtree_end' },
        before: [
          { back: 1, out: 'before_1' },
          { back: 3, out: 'before_3' },
        ],
        ...(isPath ? { end: 'ends' } : {}),
      },
      {
        name: 'scan',
        path: 'layers.0.state',
        ops: ['scan'],
        rows: 'T',
        anchor: 'scan',
        ...{ rule, keyHeads, heads, keyDim, valueDim },
        ...(takesTurns === undefined ? {} : { takesTurns }),
        ...(epsilon === undefined ? {} : { epsilon }),
        ...(scale === undefined ? {} : { scale }),
        ...{ q: 'q', k: 'k', v: 'v', decay: 'decay', beta: 'beta', before: 'before_1', end, out: 'out' },
        ...(hasSkip === true ? { skip: 'skip' } : {}),
        ...(isKept ? { kept: { state: 'state', from: 'from', to: ['to', 'also'] }, versions: { state: 0 } } : {}),
      },
    ],
  };
}

/** Values of a row depend on the row's number alone: `names` says which row stands where. */
export function scanInputs(
  module: KernelModule,
  parents: readonly number[],
  names: readonly number[] = parents.map((_, i) => i),
): ReadonlyMap<string, Float64Array> {
  const inputs = new Map(treeInputs(parents));
  module.interface.inputs.forEach(({ name, shape: [, columns = 1], dtype }, seed) => {
    if (dtype === 'i32') return;
    const width = Number(columns);
    const values = new Float64Array(parents.length * width);
    names.forEach((row, at) => {
      for (let i = 0; i < width; i++) {
        const x = ((i * 7919 + row * 15_485_863 + seed * 104_729) % 255) / 128 - 1;
        values[at * width + i] = name === 'decay' ? 0.75 + x / 4 : name === 'beta' ? 0.5 + x / 2 : x;
      }
    });
    inputs.set(name, values);
  });
  const wanted = new Set(module.buffers.map(({ name }) => name));
  return new Map([...inputs].filter(([name]) => wanted.has(name)));
}
