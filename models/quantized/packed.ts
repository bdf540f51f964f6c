/** Codes packed in words or bytes: AWQ, GPTQ, and matrices of one code a byte. */
import {
  byteCodes,
  type FilePart,
  type PerPart,
  type ScaleGrid,
  wordCodes,
  type ZeroPoint,
} from '../../ir/encoding.js';
import { defined } from '../../system/defined.js';
import type { Json } from '../model/model.js';
import type { WeightEntry } from '../model/tensors.js';
import {
  printGroups,
  type QuantizationMethod,
  type QuantizedMatrix,
  type QuantizedModule,
  MethodSettings,
} from './method.js';

// AWQ (arXiv:2306.00978) as AutoAWQ writes it for its GEMM kernels: qweight i32 [k, rows / 8], qzeros i32
// [groups, rows / 8], scales [groups, rows]. A word holds 4-bit codes of 8 rows, even ones before odd ones.

const IN_WORD = 8;
/** Place of each of 8 rows in its word. */
const PLACES = [0, 4, 1, 5, 2, 6, 3, 7];

export const awq: QuantizationMethod = {
  names: ['awq'],
  read: (config, where) => {
    const settings = new MethodSettings(config, where);
    settings.oneOf(['bits', 'w_bit'], [4]);
    settings.oneOf(['version', 'checkpoint_format', 'format'], ['gemm'], 'gemm');
    settings.oneOf(['backend'], ['autoawq', 'auto'], 'autoawq');
    settings.oneOf(['zero_point'], [true], true);
    const size = settings.groupSize(['group_size', 'q_group_size']);
    return {
      group: size,
      matrixOf: (module) => {
        if (module.get('qweight') === undefined) return undefined;
        const { rows, k } = module;
        const group = size === -1 ? k : size;
        if (rows % IN_WORD !== 0)
          return module.refuse('qweight', `words of ${IN_WORD} codes do not divide its ${rows} rows`);
        if (!module.divides('qweight', group)) return undefined;
        const groups = k / group;
        const codes = module.part('qweight', ['I32'], [k, rows / IN_WORD]);
        const zeros = module.part('qzeros', ['I32'], [groups, rows / IN_WORD]);
        const scales = module.scales('scales', [groups, rows]);
        if (codes === undefined || zeros === undefined || scales === undefined) return undefined;
        const grid = wordCodes('u4', 'column', true, PLACES);
        return {
          scheme: `AWQ, 4 bits, ${printGroups(size)}`,
          encoding: {
            kind: 'codes',
            codes: grid,
            scales: { type: scales.type, blockRows: 1, blockColumns: group, isTransposed: true },
            zero: { kind: 'stored', codes: grid, added: 0 },
            hasGroups: false,
          },
          parts: { codes, scales: scales.part, zeros },
        };
      },
    };
  },
};

// GPTQ (arXiv:2210.17323) as AutoGPTQ and GPTQModel write it: qweight i32 [k / n, rows] of n codes along k, qzeros
// i32 [groups, rows / n], scales [groups, rows], and g_idx i32 [k], the group of each column. In the first version of
// the format stored zero points are one less than those meant, modulo their range.

const CODES = { 2: 'u2', 4: 'u4', 8: 'u8' } as const;

export const gptq: QuantizationMethod = {
  names: ['gptq'],
  read: (config, where) => {
    const settings = new MethodSettings(config, where);
    const bits = settings.oneOf(['bits', 'w_bit'], [2, 4, 8]);
    const size = settings.groupSize(['group_size', 'q_group_size']);
    const format = settings.oneOf(['checkpoint_format', 'format'], ['gptq', 'gptq_v2'], 'gptq');
    const isOrdered = settings.oneOf(['desc_act'], [true, false], false);
    settings.oneOf(['pack_dtype'], ['int32'], 'int32');
    for (const key of ['is_marlin_format', 'adapter', 'rotation']) settings.forbid(key);
    // Patterns that leave modules out say no more than that these are floats.
    const others = Object.keys(settings.record('dynamic') ?? {}).filter((pattern) => !pattern.startsWith('-:'));
    if (others.length > 0) settings.forbid('dynamic');
    const inWord = 32 / bits;
    const scheme = `GPTQ${format === 'gptq' ? '' : ' version 2'}, ${bits} bits, ${printGroups(size)}${
      isOrdered ? ', columns by activation' : ''
    }`;
    return {
      ...(bits === 4 ? { group: size } : {}),
      matrixOf: (module) => {
        if (module.get('qweight') === undefined) return undefined;
        const { rows, k } = module;
        const group = size === -1 ? k : size;
        if (k % inWord !== 0 || rows % inWord !== 0)
          return module.refuse('qweight', `words of ${inWord} codes do not divide its matrix [${rows}, ${k}]`);
        if (!module.divides('qweight', group)) return undefined;
        const groups = k / group;
        const codes = module.part('qweight', ['I32'], [k / inWord, rows]);
        const zeros = module.part('qzeros', ['I32'], [groups, rows / inWord]);
        const scales = module.scales('scales', [groups, rows]);
        // Without g_idx columns are in order.
        const hasGroups = isOrdered || module.get('g_idx') !== undefined;
        const indices = hasGroups ? module.part('g_idx', ['I32'], [k]) : undefined;
        if (codes === undefined || zeros === undefined || scales === undefined) return undefined;
        if (hasGroups && indices === undefined) return undefined;
        return {
          scheme,
          encoding: {
            kind: 'codes',
            codes: wordCodes(CODES[bits], 'row', true),
            scales: { type: scales.type, blockRows: 1, blockColumns: group, isTransposed: true },
            zero: {
              kind: 'stored',
              codes: wordCodes(CODES[bits], 'column', true),
              added: format === 'gptq' ? 1 : 0,
            },
            hasGroups,
          },
          parts: { codes, scales: scales.part, zeros, ...defined({ groups: indices }) },
        };
      },
    };
  },
};

// What GPTQ checkpoints hold of a matrix, as this program writes it: version 1 of the format, which gptq.ts reads.

export interface GptqSettings {
  readonly bits: 4 | 8;
  /** Columns that share a scale; −1: all of a row. */
  readonly group: number;
  readonly isSymmetric: boolean;
  /** Columns were quantized in the order of their inputs' size. */
  readonly isOrdered: boolean;
}

/** `quantization_config` of config.json, and all of quantize_config.json. */
export const gptqConfig = ({ bits, group, isSymmetric, isOrdered }: GptqSettings, facts: Json): Json => ({
  quant_method: 'gptq',
  bits,
  group_size: group,
  sym: isSymmetric,
  desc_act: isOrdered,
  static_groups: false,
  true_sequential: true,
  lm_head: false,
  pack_dtype: 'int32',
  checkpoint_format: 'gptq',
  ...facts,
});

const inWord = ({ bits }: Pick<GptqSettings, 'bits'>): number => 32 / bits;

/** Why a matrix [rows, k] cannot be stored so; undefined if it can. */
export function gptqShapeProblem(rows: number, k: number, settings: Pick<GptqSettings, 'bits'>): string | undefined {
  const count = inWord(settings);
  const odd = [rows, k].find((extent) => extent % count !== 0);
  return odd === undefined ? undefined : `${odd} is no multiple of ${count}, the codes of a word`;
}

/** Tensors of the matrix [rows, k] of a module. */
export function gptqTensors(
  module: string,
  [rows, k]: readonly [number, number],
  settings: GptqSettings,
): readonly Omit<WeightEntry, 'offset'>[] {
  const groups = settings.group === -1 ? 1 : k / settings.group;
  const count = inWord(settings);
  const i32 = (name: string, ...shape: readonly number[]): Omit<WeightEntry, 'offset'> => ({
    name: `${module}.${name}`,
    dtype: 'I32',
    shape,
    byteLength: 4 * shape.reduce((product, extent) => product * extent, 1),
  });
  return [
    i32('qweight', k / count, rows),
    i32('qzeros', groups, rows / count),
    i32('g_idx', k),
    { name: `${module}.scales`, dtype: 'F16', shape: [groups, rows], byteLength: 2 * groups * rows },
  ];
}

/** A matrix [rows, k] as (code − zero)·scale, with a scale for each group and row. */
export interface GptqCodes {
  /** [rows, k] */
  readonly codes: Uint8Array;
  /** [groups, rows]: bits of f16. */
  readonly scales: Uint16Array;
  /** [groups, rows]: 1 to the largest code. */
  readonly zeros: Uint8Array;
  /** Columns as they were quantized; groups are neighbours of that order. */
  readonly order: Int32Array;
}

/** The bytes of a module's tensors, by name within the module. */
export function gptqBytes(
  { codes, scales, zeros, order }: GptqCodes,
  settings: GptqSettings,
): ReadonlyMap<string, Uint8Array> {
  const k = order.length;
  const rows = codes.length / k;
  const { bits, group } = settings;
  const count = inWord(settings);
  const width = group === -1 ? k : group;
  const words = new Uint32Array((k / count) * rows);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < k; column++)
      words[Math.floor(column / count) * rows + row]! |= codes[row * k + column]! << (bits * (column % count));
  const zeroWords = new Uint32Array(zeros.length / count);
  zeros.forEach((zero, i) => {
    zeroWords[Math.floor(i / count)]! |= (zero - 1) << (bits * (i % count));
  });
  const groups = new Int32Array(k);
  order.forEach((column, place) => {
    groups[column] = Math.floor(place / width);
  });
  const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
    new Uint8Array(buffer, byteOffset, byteLength);
  return new Map([
    ['qweight', bytesOf(words)],
    ['qzeros', bytesOf(zeroWords)],
    ['g_idx', bytesOf(groups)],
    ['scales', bytesOf(scales)],
  ]);
}

// Matrices with an element of 8 bits in each byte: FP8, and int8.

const PLAIN_CODES = { F8_E4M3: 'e4m3', F8_E5M2: 'e5m2', I8: 'i8' } as const;
type CodeName = keyof typeof PLAIN_CODES;
const PRINTED: Readonly<Record<CodeName, string>> = { F8_E4M3: 'FP8 (E4M3)', F8_E5M2: 'FP8 (E5M2)', I8: 'int8' };

const isPlainCode = (dtype: string): dtype is CodeName => Object.hasOwn(PLAIN_CODES, dtype);

export interface PlainOptions {
  /** The type that the configuration names; others are refused. */
  readonly codes: 'F8_E4M3' | 'I8';
  /** Whether it says that there are zero points. */
  readonly needsZeros?: boolean;
  /** Rows and columns of a block, where the configuration names one. */
  readonly block?: readonly [number, number];
  /** Columns of a group, where it names one. */
  readonly group?: number;
}

/** What a scale is for, by the shape of the scales. */
interface Granularity {
  readonly shape: readonly number[];
  readonly blockRows: number;
  readonly blockColumns: number;
  readonly printed: string;
  /** A scale for each projection in the matrix, whose rows need not be equally many. */
  readonly isPerPart?: boolean;
}

function granularities({ rows, k, projections }: QuantizedModule, { block, group }: PlainOptions): Granularity[] {
  const whole = { blockRows: rows, blockColumns: k, printed: 'a scale for each matrix' };
  const channel = { blockRows: 1, blockColumns: k, printed: 'a scale for each row' };
  if (block !== undefined) {
    const [blockRows, blockColumns] = block;
    const shape = [Math.ceil(rows / blockRows), Math.ceil(k / blockColumns)];
    return [{ shape, blockRows, blockColumns, printed: `blocks of ${blockRows} × ${blockColumns}` }];
  }
  if (group !== undefined)
    return [{ shape: [rows, k / group], blockRows: 1, blockColumns: group, printed: `groups of ${group}` }];
  return [
    { shape: [rows, 1], ...channel },
    { shape: [], ...whole },
    { shape: [1], ...whole },
    { shape: [1, 1], ...whole },
    ...(projections > 1 ? [{ shape: [projections], ...whole, isPerPart: true }] : []),
    { shape: [rows], ...channel },
  ];
}

/** The matrix whose codes are `weight` and whose scales are the first of these tensors; undefined if it is floats. */
export function plainMatrix(
  module: QuantizedModule,
  scaleNames: readonly string[],
  options: PlainOptions,
): QuantizedMatrix | undefined {
  const weight = module.get('weight');
  if (weight === undefined || !isPlainCode(weight.dtype)) return undefined;
  if (weight.dtype !== options.codes)
    return module.refuse('weight', `${PRINTED[weight.dtype]}, where the configuration says ${PRINTED[options.codes]}`);
  if (options.group !== undefined && !module.divides('weight', options.group)) return undefined;
  const known = granularities(module, options);
  const name = scaleNames.find((each) => module.get(each) !== undefined) ?? scaleNames[0]!;
  const codes = module.part('weight', [weight.dtype], [module.rows, module.k]);
  const scales = module.scales(name, ...known.map(({ shape }) => shape));
  const zeros = zeroPoints(module, name, options.needsZeros === true);
  if (codes === undefined || scales === undefined || zeros === undefined) return undefined;
  const found = known.find(({ shape }) => shape.join() === module.get(name)!.shape.join())!;
  const { blockRows, blockColumns, printed, isPerPart = false } = found;
  const grid: ScaleGrid = { type: scales.type, blockRows, blockColumns, isTransposed: false };
  return {
    scheme: `${PRINTED[weight.dtype]}, ${printed}`,
    encoding: {
      kind: 'codes',
      codes: byteCodes(PLAIN_CODES[weight.dtype]),
      scales: grid,
      zero: zeros.zero,
      hasGroups: false,
    },
    parts: { codes, scales: scales.part, ...zeros.parts },
    ...(isPerPart ? { hasScalePerPart: true } : {}),
  };
}

/** Zero points of int8, one for each scale; undefined, with the problem reported, if they do not fit. */
function zeroPoints(
  module: QuantizedModule,
  scale: string,
  isNeeded: boolean,
): { readonly zero: ZeroPoint; readonly parts: PerPart<FilePart> } | undefined {
  if (module.get('weight_zero_point') === undefined)
    return isNeeded
      ? module.refuse('weight_zero_point', 'missing')
      : { zero: { kind: 'constant', value: 0 }, parts: {} };
  if (module.get('weight')?.dtype !== 'I8') return module.refuse('weight_zero_point', 'FP8 has no zero points');
  const zeros = module.part('weight_zero_point', ['I8'], module.get(scale)?.shape ?? []);
  return zeros && { zero: { kind: 'stored', codes: byteCodes('i8'), added: 0 }, parts: { zeros } };
}
