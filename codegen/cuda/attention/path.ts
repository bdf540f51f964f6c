/** Attention over paths by warps: the Config of attention/path.cuh, and the unit of a kernel that has one. */
import type { CudaAttentionSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import type { AttentionKernel } from '../../../ir/kernel.js';
import { reachOfMask } from '../../../ir/mask.js';
import { maskBuffers, scaleBuffers } from '../../../ir/kernelAccess.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { defined } from '../../../system/defined.js';
import { type CudaOperands, ELEMENT_TYPES, kernelHead, type Operand } from '../text/operands.js';
import { BOUNDED_UNIT, floatLiteral } from '../text/statements.js';
import { aboutKernel, type ConfigFields, type ConfigValue, unitText } from '../text/unit.js';
import type { AttentionTile } from './tile.js';

/** A kernel to print, with what follows from its schedule. */
export interface AttentionCode {
  readonly kernel: AttentionKernel;
  readonly operands: CudaOperands;
  readonly schedule: CudaAttentionSchedule;
  readonly symbol: string;
  readonly tile: AttentionTile;
  /** Rows of keys and values that lists and masks may name. */
  readonly keyRows: ReturnType<CudaOperands['rowsOf']>;
}

/** The fields of PathConfig (attention/path.cuh) that have no default there. */
export interface PathConfig extends ConfigFields {
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

export const scaleLayout = ({ stride, columnStride }: Operand): ConfigFields => ({
  stride,
  ...(columnStride === 1 ? {} : { block: columnStride }),
});

export const literal = (value: number): ConfigValue => ({ name: floatLiteral(value) });

/** The buffer of sinks, whose type operands have behind those of all kernels. */
export const sinkOf = ({ sink }: AttentionKernel): readonly string[] => (sink === undefined ? [] : [sink]);

/** Slopes, which become scores by a unit: PathConfig's scale multiplies them later, but for those of codes. */
function slopeFields({ slopes, slopeFactor, cap, scale, scales }: AttentionKernel): ConfigFields {
  if (slopes === undefined) return {};
  const unit = (slopeFactor ?? 1) * (scales === undefined ? 1 / (cap ?? scale) : Math.LOG2E);
  return { slopeUnit: literal(unit), ...(slopeFactor === undefined ? {} : { roundsSlopes: true }) };
}

/** The Config of a kernel under its schedule. */
export function pathConfig({ kernel, operands, schedule, tile }: AttentionCode, readsAhead: boolean): PathConfig {
  const { heads, kvHeads, headDim, mask, cap, scale } = kernel;
  const { queries, teams = 1, cluster = 1 } = schedule;
  const [q, k, v, out] = [kernel.q, kernel.k, kernel.v, kernel.out].map((name) => operands.get(name)) as [
    Operand,
    Operand,
    Operand,
    Operand,
  ];
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => operands.get(name));
  const { window, chunk } = reachOfMask(mask);
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
    ...defined({ window, chunk }),
    ...slopeFields(kernel),
    ...(kernel.sink === undefined ? {} : { hasSinks: true }),
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

/** A member of a kernel's operands, and the parameter or extent that it is. */
export type Member = readonly [member: string, value: string | number];

/** A kernel as a call of a header's function. */
interface AttentionCall {
  readonly header: string;
  /** The function with its template arguments. */
  readonly call: string;
  readonly config: { readonly type: string; readonly fields: ConfigFields };
  /** The struct of its operands, whose arguments are the types of the queries, perhaps the keys, and the result. */
  readonly operands: string;
  readonly elements: readonly string[];
  readonly members: readonly Member[];
  readonly tensorMaps?: readonly TensorMapDecl[];
  /** Whether the function waits for the kernel before it by itself. */
  readonly waits?: boolean;
}

/** C++ names of a kernel's parameters, by the names of their buffers; nothing for a buffer that it does not have. */
export function membersOf(
  { operands }: Pick<AttentionCode, 'operands'>,
  buffers: readonly (readonly [member: string, buffer: string | undefined])[],
): Member[] {
  return buffers.flatMap(([member, buffer]) =>
    buffer === undefined ? [] : [[member, operands.base(operands.get(buffer))] as const],
  );
}

/** The unit of a kernel that is one call with its buffers. */
export function callUnit(
  code: AttentionCode,
  { header, call, config, operands: type, elements, members, tensorMaps = [], waits = false }: AttentionCall,
): string {
  const { kernel, symbol, tile } = code;
  const operands = code.operands;
  const types = elements.map((name) => ELEMENT_TYPES[operands.get(name).dtype]).join(', ');
  const lines = members.map(([to, from]) => `      .${to} = ${from},\n`).join('');
  const maps = tensorMaps.map(({ parameter }) => `, &${operands.parameterNames[parameter]!}_map`).join('');
  return unitText({
    about: aboutKernel(kernel, scheduleText(code)),
    includes: [header],
    config,
    functors: [],
    head: kernelHead({
      symbol,
      extents: operands.extents,
      operands,
      tensorMaps,
      threads: tile.threads,
      blocks: tile.blocks,
    }),
    body: `${waits ? '' : '  await_previous();\n'}  ${call}(${type}<${types}>{\n${lines}  }${maps});`,
  });
}

/** The unit of a kernel whose blocks take paths by `skeleton`. */
export function pathUnit(
  code: AttentionCode,
  { header, entry, readsAhead, waits = false, fields = {}, tensorMaps = [] }: PathSkeleton,
): string {
  const { kernel, operands } = code;
  const { mask, scales, queryRow } = kernel;
  if (mask.kind !== 'path') throw new Error(`Kernel ${kernel.name} (${kernel.path}) is not over paths.`);
  const config = pathConfig(code, readsAhead);
  return callUnit(code, {
    header,
    call: `${entry}<config>`,
    config: { type: 'PathConfig', fields: { ...config, ...fields } },
    operands: 'PathOperands',
    elements: [kernel.q, kernel.k, kernel.out, ...sinkOf(kernel)],
    members: [
      ...membersOf(code, [
        ['q', kernel.q],
        ['k', kernel.k],
        ['v', kernel.v],
        ['q_tail', kernel.tail?.q],
        ['k_tail', kernel.tail?.k],
        ['k_scales', scales?.k],
        ['v_scales', scales?.v],
        ['begin', mask.begin],
        ['position', mask.position],
        ['key', mask.key],
        ['query_row', queryRow],
        ['slopes', kernel.slopes],
        ['sinks', kernel.sink],
        ['out', kernel.out],
      ]),
      ['rows', kernel.rows],
      ['query_rows', operands.rowsOf(kernel.q).extent],
      ['key_rows', code.keyRows.extent],
    ],
    tensorMaps,
    waits: waits || config['readsAhead'] === true,
  });
}
