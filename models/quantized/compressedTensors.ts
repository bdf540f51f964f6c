/** Checkpoints with scales beside their matrices: compressed-tensors and FP8. */
import { at } from '../../system/at.js';
import { UserError } from '../../errors.js';
import {
  byteCodes,
  type CodesEncoding,
  type FilePart,
  type PerPart,
  wordCodes,
  type ZeroPoint,
} from '../../ir/encoding.js';
import { groupOf, type GroupSize } from '../../ir/groups.js';
import { defined } from '../../system/defined.js';
import { isRecord, quote } from '../../system/json.js';
import type { Json } from '../model/model.js';
import { areGroupsInOrder, type EncodedTensor, type TensorLocation } from '../model/tensors.js';
import {
  OTHER_WEIGHTS,
  printGroups,
  type Quantization,
  type QuantizationMethod,
  type QuantizedMatrix,
  type QuantizedModule,
  MethodSettings,
} from './method.js';
import { plainMatrix } from './packed.js';

// compressed-tensors, as LLM Compressor writes it. `pack-quantized`: weight_packed i32 [rows, ⌈k / n⌉] of n codes along
// k, to which half their range was added, weight_scale [rows, groups], weight_zero_point i32 [⌈rows / n⌉, groups],
// weight_shape, and weight_g_idx i32 [k] where columns were ordered. The other formats have a byte for each element.

/** Formats, and the types of their codes. */
const TYPES = {
  'pack-quantized': ['int'],
  'int-quantized': ['int'],
  'float-quantized': ['float'],
  'naive-quantized': ['int', 'float'],
} as const;
type PackFormat = keyof typeof TYPES;
const FORMATS = Object.keys(TYPES) as readonly PackFormat[];
const STRATEGIES = ['tensor', 'channel', 'group', 'block'] as const;

interface Scheme {
  readonly type: 'int' | 'float';
  readonly bits: 4 | 8;
  readonly group: number;
  readonly isOrdered: boolean;
  readonly isSymmetric: boolean;
  readonly block?: readonly [number, number];
  readonly strategy: (typeof STRATEGIES)[number];
  /** What rows of activations become, with scales that are computed with them. */
  readonly activations?: Quantization['activations'];
}

export const compressedTensors: QuantizationMethod = {
  names: ['compressed-tensors', 'compressed_tensors'],
  read: (config, where) => {
    const settings = new MethodSettings(config, where);
    settings.oneOf(['quantization_status'], ['compressed', 'frozen'], 'compressed');
    settings.forbid('transform_config');
    const sparsity = settings.record('sparsity_config');
    if (sparsity !== undefined && Object.keys(sparsity).length > 0)
      new MethodSettings(sparsity, `${where}: sparsity_config`).oneOf(['format'], ['dense'], 'dense');
    const format = settings.oneOf(['format'], FORMATS);
    const scheme = onlyScheme(settings, where, format);
    return format === 'pack-quantized' ? packed(scheme) : plain(scheme);
  },
};

/** The scheme of all groups of modules. Those that are in no group are stored as floats. */
function onlyScheme(settings: MethodSettings, where: string, format: PackFormat): Scheme {
  const groups = Object.entries(settings.record('config_groups') ?? {});
  const schemes = groups.map(([name, group]) => {
    const place = `${where}: config_groups: ${/^[\w.-]{1,80}$/.test(name) ? name : quote(name, 80)}`;
    const weights = isRecord(group) ? group['weights'] : undefined;
    if (!isRecord(group) || !isRecord(weights))
      throw new UserError(`${place}: weights: expected an object, got ${quote(weights)}`, OTHER_WEIGHTS);
    new MethodSettings(group, place).oneOf(['format'], [format], format);
    const activations = roundedRows(group['input_activations']);
    return {
      ...readScheme(weights, format, `${place}: weights`),
      ...defined({ activations }),
    };
  });
  const [first] = schemes;
  if (first === undefined) settings.refuse('config_groups', 'groups of modules');
  if (schemes.some((scheme) => JSON.stringify(scheme) !== JSON.stringify(first)))
    throw new UserError(`${where}: config_groups: weights of several kinds are not supported`, OTHER_WEIGHTS);
  return first;
}

/**
 * What these settings of activations mean: int8 with a scale for each row, computed with it, and no zero point; or FP8,
 * whose rows have scales of their own in place of fixed ones, or of one for the whole tensor. Undefined for others.
 */
function roundedRows(activations: unknown): Quantization['activations'] {
  if (!isRecord(activations)) return undefined;
  const { type = 'int', num_bits: bits = 8, strategy, dynamic, symmetric = true } = activations;
  if (bits !== 8 || symmetric !== true) return undefined;
  if (type === 'float') return strategy === 'token' || strategy === 'tensor' ? 'fp8' : undefined;
  return type === 'int' && strategy === 'token' && dynamic === true ? 'int8' : undefined;
}

function readScheme(weights: Json, format: PackFormat, where: string): Omit<Scheme, 'activations'> {
  const settings = new MethodSettings(weights, where);
  const type = settings.oneOf<'int' | 'float'>(
    ['type'],
    TYPES[format],
    format === 'float-quantized' ? undefined : 'int',
  );
  const bits = settings.oneOf(['num_bits'], type === 'float' ? [8] : [4, 8], 8);
  const strategy = settings.oneOf(['strategy'], STRATEGIES, settings.isGiven('group_size') ? 'group' : 'tensor');
  const order = settings.oneOf(['actorder'], ['', 'weight', 'static', 'group', 'dynamic', true, false], '');
  const group = strategy === 'group' ? settings.groupSize(['group_size']) : -1;
  const block = strategy === 'block' ? settings.twoSizes('block_structure', true) : undefined;
  return {
    type,
    bits: bits === 4 ? 4 : 8,
    group,
    strategy,
    isOrdered: order === 'group' || order === 'dynamic' || order === true,
    isSymmetric: settings.oneOf(['symmetric'], [true, false], true),
    ...defined({ block }),
  };
}

const plain = ({ type, isSymmetric, strategy, group, block, activations }: Scheme): Quantization => ({
  ...defined({ activations }),
  matrixOf: (module) =>
    plainMatrix(module, ['weight_scale'], {
      codes: type === 'float' ? 'F8_E4M3' : 'I8',
      needsZeros: !isSymmetric,
      ...(strategy === 'group' && group !== -1 ? { group } : {}),
      ...defined({ block }),
    }),
});

const packed = (scheme: Scheme): Quantization => ({
  matrixOf: (module) => (module.get('weight_packed') === undefined ? undefined : packedMatrix(module, scheme)),
});

function packedMatrix(module: QuantizedModule, scheme: Scheme): QuantizedMatrix | undefined {
  const { bits, strategy, isOrdered } = scheme;
  const { rows, k } = module;
  const inWord = 32 / bits;
  const group = scheme.group === -1 ? k : scheme.group;
  if (strategy === 'block') return module.refuse('weight_packed', 'blocks of scales are not supported here');
  if (!module.divides('weight_packed', group)) return undefined;
  const isTensor = strategy === 'tensor';
  const codes = module.part('weight_packed', ['I32'], [rows, Math.ceil(k / inWord)]);
  const scales = isTensor
    ? module.scales('weight_scale', [1], [], [1, 1])
    : module.scales('weight_scale', [rows, k / group]);
  const isShaped = module.hasShape('weight_shape');
  const zeros = packedZeros(module, scheme, isTensor ? 1 : rows, k / group);
  const hasGroups = isOrdered || module.get('weight_g_idx') !== undefined;
  const indices = hasGroups ? module.part('weight_g_idx', ['I32'], [k]) : undefined;
  if (codes === undefined || scales === undefined || !isShaped || zeros === undefined) return undefined;
  if (hasGroups && indices === undefined) return undefined;
  return {
    scheme: `compressed-tensors, int${bits}, ${isTensor ? 'a scale for each matrix' : printGroups(scheme.group)}${
      hasGroups ? ', columns by activation' : ''
    }`,
    encoding: {
      kind: 'codes',
      codes: wordCodes(bits === 4 ? 'u4' : 'u8', 'row', false),
      scales: {
        type: scales.type,
        blockRows: isTensor ? rows : 1,
        blockColumns: group,
        isTransposed: false,
      },
      zero: zeros.zero,
      hasGroups,
    },
    parts: {
      codes,
      scales: scales.part,
      ...zeros.parts,
      ...defined({ groups: indices }),
    },
  };
}

/** Zero points: packed as codes are, by columns, or a byte each in older files. Half the range where there are none. */
function packedZeros(
  module: QuantizedModule,
  { bits, isSymmetric }: Scheme,
  rows: number,
  groups: number,
): { readonly zero: ZeroPoint; readonly parts: PerPart<FilePart> } | undefined {
  const half = 2 ** (bits - 1);
  const stored = module.get('weight_zero_point');
  if (stored === undefined)
    return isSymmetric
      ? { zero: { kind: 'constant', value: half }, parts: {} }
      : module.refuse('weight_zero_point', 'missing');
  if (stored.dtype === 'I8' && bits === 4) {
    const zeros = module.part('weight_zero_point', ['I8'], [rows, groups]);
    return zeros && { zero: { kind: 'stored', codes: byteCodes('i8'), added: half }, parts: { zeros } };
  }
  const zeros = module.part('weight_zero_point', ['I32'], [Math.ceil((rows * bits) / 32), groups]);
  const codes = wordCodes(bits === 4 ? 'u4' : 'u8', 'column', false);
  return zeros && { zero: { kind: 'stored', codes, added: 0 }, parts: { zeros } };
}

// FP8 (E4M3) as vLLM, transformers, FBGEMM and ModelOpt write it: `weight` [rows, k] with `weight_scale`, one for the
// matrix or for each projection of a fused module, or one for each row; or with `weight_scale_inv`, a factor despite
// its name, for each block of 128 × 128.

export const fp8: QuantizationMethod = {
  names: ['fp8', 'fbgemm_fp8'],
  read: (config, where) => {
    const settings = new MethodSettings(config, where);
    settings.oneOf(['activation_scheme'], ['dynamic', 'static'], 'dynamic');
    settings.oneOf(['fmt'], ['e4m3'], 'e4m3');
    const block = settings.isGiven('weight_block_size') ? settings.twoSizes('weight_block_size') : undefined;
    return {
      // Rows have scales of their own, which are nearer than a fixed one.
      ...(block === undefined ? { activations: 'fp8' } : {}),
      matrixOf: (module) =>
        plainMatrix(module, block === undefined ? ['weight_scale'] : ['weight_scale_inv', 'weight_scale'], {
          codes: 'F8_E4M3',
          ...defined({ block }),
        }),
    };
  },
};

/** FP8 among the algorithms of ModelOpt. */
export const modelopt: QuantizationMethod = {
  names: ['modelopt'],
  read: (config, where) => {
    new MethodSettings(config, where).oneOf(['quant_algo'], ['FP8']);
    return { activations: 'fp8', matrixOf: (module) => plainMatrix(module, ['weight_scale'], { codes: 'F8_E4M3' }) };
  },
};

// Which matrices of a checkpoint targets may keep in 4 bits, and in groups of how many columns.

/** Matrices of layers: their names have a number. The head and embeddings are read in other ways. */
const OF_LAYER = /\.\d+\./;

/** Why kernels cannot read these codes; undefined if they can. */
function codesProblem({ codes, scales, zero }: CodesEncoding): string | undefined {
  if (codes.type !== 'u4') return `codes of ${codes.type}`;
  if (scales.blockRows !== 1) return 'scales for several rows';
  if (scales.type !== 'f16' && scales.type !== 'bf16') return `scales of ${scales.type}`;
  if (zero.kind === 'constant')
    return Number.isInteger(zero.value) && zero.value >= 0 && zero.value <= 15 ? undefined : 'another zero point';
  return zero.codes.type === 'u4' ? undefined : 'zero points of other than 4 bits';
}

/** The group of an encoded matrix, or why it has none. */
function groupIn(tensor: EncodedTensor): GroupSize | string {
  const { encoding, shape } = tensor;
  if (encoding.kind !== 'codes') return `blocks of ${encoding.block}`;
  const problem = codesProblem(encoding);
  if (problem !== undefined) return problem;
  const { blockColumns } = encoding.scales;
  const group = groupOf(blockColumns, at(shape, 1));
  if (group === undefined) return `groups of ${blockColumns} columns of ${shape[1]}`;
  return encoding.hasGroups && !areGroupsInOrder(tensor.parts, at(shape, 1), blockColumns)
    ? 'columns ordered by activation'
    : group;
}

export interface KeptGroups {
  /** By tensor. */
  readonly groups: ReadonlyMap<string, GroupSize>;
  /** Matrices of 4 bits that are decoded to 16, by the reason. */
  readonly decoded: ReadonlyMap<string, number>;
}

/** Reads the order of columns where files say one. */
export function keptGroups(tensors: ReadonlyMap<string, TensorLocation>): KeptGroups {
  const groups = new Map<string, GroupSize>();
  const decoded = new Map<string, number>();
  for (const [name, tensor] of tensors) {
    if (!OF_LAYER.test(name)) continue;
    if (tensor.kind === 'random' && tensor.group !== undefined) groups.set(name, tensor.group);
    if (tensor.kind !== 'encoded') continue;
    const found = groupIn(tensor);
    if (typeof found === 'number') groups.set(name, found);
    else decoded.set(found, (decoded.get(found) ?? 0) + 1);
  }
  return { groups, decoded };
}
