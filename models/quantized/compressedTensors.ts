/**
 * compressed-tensors, as LLM Compressor writes it. `pack-quantized`: weight_packed i32 [rows, ⌈k / n⌉] of n codes along
 * k, to which half their range was added, weight_scale [rows, groups], weight_zero_point i32 [⌈rows / n⌉, groups],
 * weight_shape, and weight_g_idx i32 [k] where columns were ordered. The other formats have a byte for each element.
 */
import { defined } from '../../system/defined.js';
import { wordCodes, byteCodes, type FilePart, type PerPart, type ZeroPoint } from '../../ir/encoding.js';
import { UserError } from '../../errors.js';
import { isRecord, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';
import type { Quantization, QuantizationMethod, QuantizedMatrix, QuantizedModule } from './method.js';
import { plainMatrix } from './plainCodes.js';
import { OTHER_WEIGHTS, printGroups, Settings } from './settings.js';

/** Formats, and the types of their codes. */
const TYPES = {
  'pack-quantized': ['int'],
  'int-quantized': ['int'],
  'float-quantized': ['float'],
  'naive-quantized': ['int', 'float'],
} as const;
type Format = keyof typeof TYPES;
const FORMATS = Object.keys(TYPES) as readonly Format[];
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
    const settings = new Settings(config, where);
    settings.oneOf(['quantization_status'], ['compressed', 'frozen'], 'compressed');
    settings.forbid('transform_config');
    const sparsity = settings.record('sparsity_config');
    if (sparsity !== undefined && Object.keys(sparsity).length > 0)
      new Settings(sparsity, `${where}: sparsity_config`).oneOf(['format'], ['dense'], 'dense');
    const format = settings.oneOf(['format'], FORMATS);
    const scheme = onlyScheme(settings, where, format);
    return format === 'pack-quantized' ? packed(scheme) : plain(scheme);
  },
};

/** The scheme of all groups of modules. Those that are in no group are stored as floats. */
function onlyScheme(settings: Settings, where: string, format: Format): Scheme {
  const groups = Object.entries(settings.record('config_groups') ?? {});
  const schemes = groups.map(([name, group]) => {
    const place = `${where}: config_groups: ${/^[\w.-]{1,80}$/.test(name) ? name : quote(name, 80)}`;
    const weights = isRecord(group) ? group['weights'] : undefined;
    if (!isRecord(group) || !isRecord(weights))
      throw new UserError(`${place}: weights: expected an object, got ${quote(weights)}`, OTHER_WEIGHTS);
    new Settings(group, place).oneOf(['format'], [format], format);
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

function readScheme(weights: Json, format: Format, where: string): Omit<Scheme, 'activations'> {
  const settings = new Settings(weights, where);
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
