/** Matrices with an element of 8 bits in each byte: FP8, and int8. */
import { byteCodes, type FilePart, type PerPart, type ScaleGrid, type ZeroPoint } from '../../ir/encoding.js';
import type { QuantizedMatrix, QuantizedModule } from './method.js';

const CODES = { F8_E4M3: 'e4m3', F8_E5M2: 'e5m2', I8: 'i8' } as const;
type CodeName = keyof typeof CODES;
const PRINTED: Readonly<Record<CodeName, string>> = { F8_E4M3: 'FP8 (E4M3)', F8_E5M2: 'FP8 (E5M2)', I8: 'int8' };

const isPlainCode = (dtype: string): dtype is CodeName => Object.hasOwn(CODES, dtype);

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
      codes: byteCodes(CODES[weight.dtype]),
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
