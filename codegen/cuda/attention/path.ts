/** Attention over paths by warps: the Config of attention/path.cuh, and the unit of a kernel that has one. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { windowOfMask } from '../../../ir/kernel.js';
import { maskBuffers, scaleBuffers } from '../../../ir/kernelAccess.js';
import { ELEMENT_TYPES, kernelHead, type Operand } from '../text/operands.js';
import { BOUNDED_UNIT, floatLiteral } from '../text/statements.js';
import { aboutKernel, type ConfigFields, type ConfigValue, unitText } from '../unit.js';
import type { AttentionCode } from './pieces.js';

/** The fields of PathConfig (attention/path.cuh) that have no default there. */
interface PathConfig extends ConfigFields {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly queries: number;
  readonly warps: number;
  readonly keyBytes: number;
  readonly qStride: number;
  readonly kStride: number;
  readonly vStride: number;
  readonly outStride: number;
  readonly scale: ConfigValue;
}

/** A header of attention over paths, and the function that is the kernel. */
export interface PathSkeleton {
  readonly header: string;
  readonly entry: string;
  /** Whether it waits for the kernel before it by itself, where all lists are inputs of the call. */
  readonly readsAhead: boolean;
  /** Whether it always waits by itself, in its header. */
  readonly waits?: boolean;
  /** Fields of the Config that only this kernel reads. */
  readonly fields?: ConfigFields;
  /** Of keys and values, which the kernel takes behind its operands. */
  readonly tensorMaps?: readonly TensorMapDecl[];
}

const scaleLayout = ({ stride, columnStride }: Operand): ConfigFields => ({
  stride,
  ...(columnStride === 1 ? {} : { block: columnStride }),
});

const literal = (value: number): ConfigValue => ({ name: floatLiteral(value) });

/** The Config of a kernel under its schedule. */
function pathConfig({ kernel, operands, schedule, tile }: AttentionCode, readsAhead: boolean): PathConfig {
  const { heads, kvHeads, headDim, mask, cap, scale } = kernel;
  const { queries, teams = 1, cluster = 1 } = schedule;
  const [q, k, v, out] = [kernel.q, kernel.k, kernel.v, kernel.out].map((name) => operands.get(name)) as [
    Operand,
    Operand,
    Operand,
    Operand,
  ];
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => operands.get(name));
  const window = windowOfMask(mask);
  const lists = [...maskBuffers(mask), ...(kernel.queryRow === undefined ? [] : [kernel.queryRow])];
  return {
    heads,
    kvHeads,
    headDim,
    queries,
    warps: tile.threads / 32,
    keyBytes: DTYPE_BYTES[k.dtype],
    qStride: q.stride,
    kStride: k.stride,
    vStride: v.stride,
    outStride: out.stride,
    ...(kScale === undefined || vScale === undefined
      ? {}
      : { kScales: scaleLayout(kScale), vScales: scaleLayout(vScale) }),
    scale: literal((cap ?? scale) * Math.LOG2E),
    ...(cap === undefined ? {} : { isCapped: true, capFactor: literal((scale / cap) * BOUNDED_UNIT) }),
    ...(window === undefined ? {} : { window }),
    ...(kernel.queryRow === undefined ? {} : { hasQueryRow: true }),
    ...(readsAhead && lists.every((name) => operands.get(name).isInput) ? { readsAhead: true } : {}),
    ...(teams === 1 ? {} : { teams }),
    ...(cluster === 1 ? {} : { cluster }),
    ...(tile.slots === 1 ? {} : { slots: tile.slots }),
    sharedBytes: tile.dynamicBytes,
  };
}

/** A schedule in words: `mma, 1 query, 2 teams`. */
function scheduleText({ schedule }: AttentionCode): string {
  const { queries, teams, cluster, lone, resident, sharesTiles } = schedule;
  const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;
  return [
    count(queries, 'query', 'queries') + ' a block',
    ...(cluster === undefined ? [] : [`clusters of ${cluster}`]),
    ...(teams === undefined ? [] : [count(teams, 'team')]),
    ...(lone === undefined ? [] : [`${lone} lone warps a multiprocessor`]),
    ...(resident === undefined ? [] : [`${resident} blocks a multiprocessor`]),
    ...(sharesTiles === true ? ['shared tiles'] : []),
  ].join(', ');
}

/** The unit of a kernel whose blocks take paths by `skeleton`. */
export function pathUnit(
  code: AttentionCode,
  { header, entry, readsAhead, waits = false, fields = {}, tensorMaps = [] }: PathSkeleton,
): string {
  const { kernel, symbol, tile } = code;
  const operands = code.operands.named();
  const { mask } = kernel;
  if (mask.kind !== 'path') throw new Error(`Kernel ${kernel.name} (${kernel.path}) is not over paths.`);
  const name = (of: string): string => operands.base(operands.get(of));
  const element = (of: string): string => ELEMENT_TYPES[operands.get(of).dtype];
  const { scales, queryRow } = kernel;
  const members: readonly (readonly [string, string | number])[] = [
    ['q', name(kernel.q)],
    ['k', name(kernel.k)],
    ['v', name(kernel.v)],
    ...(scales === undefined
      ? []
      : ([
          ['k_scales', name(scales.k)],
          ['v_scales', name(scales.v)],
        ] as const)),
    ['begin', name(mask.begin)],
    ['position', name(mask.position)],
    ['key', name(mask.key)],
    ...(queryRow === undefined ? [] : ([['query_row', name(queryRow)]] as const)),
    ['out', name(kernel.out)],
    ['rows', kernel.rows],
    ['query_rows', operands.rowsOf(kernel.q).extent],
    ['key_rows', code.keyRows.extent],
  ];
  const maps = tensorMaps.map(({ parameter }) => `, &${operands.parameterNames[parameter]!}_map`).join('');
  const types = [kernel.q, kernel.k, kernel.out].map(element).join(', ');
  const config = pathConfig(code, readsAhead);
  const lines = members.map(([to, from]) => `      .${to} = ${from},\n`);
  const wait = waits || config['readsAhead'] === true ? '' : '  await_previous();\n';
  return unitText({
    about: aboutKernel(kernel, scheduleText(code)),
    includes: [header],
    config: { type: 'PathConfig', fields: { ...config, ...fields } },
    functors: [],
    head: kernelHead({
      symbol,
      extents: operands.extents,
      parameters: operands.parameters.length,
      operands,
      tensorMaps,
      threads: tile.threads,
      blocks: tile.blocks,
    }),
    body: `${wait}  ${entry}<config>(PathOperands<${types}>{\n${lines.join('')}  }${maps});`,
  });
}
