/**
 * Scalar programs printed as C over vectors of 16 columns. Common subexpressions are computed once. Values that depend
 * on the row alone are computed once per row, as scalars.
 */
import {
  type Access,
  type BinaryScalar,
  isBinary,
  isUnary,
  printScalar,
  type Scalar,
  type SegmentSum,
  type UnaryScalar,
  viaOf,
} from '../../ir/scalar.js';
import { C_ARITHMETIC, C_COMPARE, C_LOGIC, printDouble } from '../scalarPrograms.js';
import { doubleLiteral, floatLiteral, type Operand, type CRowScope, type VectorValue } from './operands.js';

/** The 16 columns for which a program is evaluated: adjacent ones, unless `at` gives others. */
export interface VectorSite {
  /** Distinguishes sites of one body. */
  readonly id: string;
  /** C expression of the first logical column. */
  readonly column: string;
  /** C expression of a lane's logical column, if the columns are not adjacent. */
  readonly at?: (lane: string) => string;
  /** How many of the 16 columns exist: a number, or a C expression (which may be below 0 or above 16). */
  readonly lanes: number | string;
  /** How many of the 16 are stored: a C expression. Default: all, those past the domain as padding. */
  readonly count?: string;
  /** C expression of the accumulators at this site. */
  readonly acc?: (index: 0 | 1) => string;
  /** C expressions (vectors) of values that a group of columns shares, by printScalar of their program. */
  readonly given?: ReadonlyMap<string, string>;
  /** rotateHalf(a) at this site: from a value printed at another site and its sign, or from a vector expression. */
  readonly rotate?: (a: Scalar, body: VectorBody) => VectorValue;
}

/** C expression of the logical column of a lane. */
const columnOf = (site: VectorSite, lane: string): string => site.at?.(lane) ?? `${site.column} + ${lane}`;

/** The statements of one chunk of columns: one site, or two that need each other's values. */
export class VectorBody {
  readonly lines: string[] = [];
  readonly row: CRowScope;
  private readonly values = new Map<string, VectorValue>();
  private counter = 0;

  constructor(row: CRowScope) {
    this.row = row;
  }

  /** Prints `s` at `site`; the same expression at the same site is printed once. */
  value(s: Scalar, site: VectorSite): VectorValue {
    const key = `${site.id} ${printScalar(s)}`;
    const known = this.values.get(key);
    if (known !== undefined) return known;
    const given = site.given?.get(printScalar(s));
    const value = this.row.within(s, () => (given === undefined ? this.print(s, site) : this.columnValue('f', given)));
    this.values.set(key, value);
    return value;
  }

  /** `s` as a vector of floats. Lanes past the last column are zero. */
  masked(s: Scalar, site: VectorSite): string {
    const vector = this.float(this.value(s, site));
    if (site.lanes === 16) return vector;
    return this.define('tw_v', `tw_select(tw_first(${site.lanes}), ${vector}, tw_set1(0.0f))`);
  }

  /** Adds statements of the expression that is being printed. */
  private put(...lines: readonly string[]): void {
    this.lines.push(...lines.map((line) => line + this.row.mark));
  }

  define(type: string, code: string): string {
    const name = `${type === 'tw_m' ? 'm' : 'v'}${this.counter++}`;
    this.put(`const ${type} ${name} = ${code};`);
    return name;
  }

  /** A vector of floats. */
  float(value: VectorValue): string {
    if (value.isRow) return this.row.broadcast(this.rowFloat(value));
    return value.kind === 'f' ? value.code : this.define('tw_v', `tw_mask_float(${value.code})`);
  }

  private rowFloat(value: VectorValue): VectorValue {
    return value.kind === 'f' ? value : { code: `(float)${value.code}`, kind: 'f', isRow: true };
  }

  private mask(value: VectorValue): string {
    if (value.isRow) return this.row.broadcast(this.rowTruth(value));
    return value.kind === 'm' ? value.code : this.define('tw_m', `tw_nonzero(${value.code})`);
  }

  private rowTruth(value: VectorValue): VectorValue {
    return value.kind === 'm' ? value : { code: `(${value.code} != 0.0f)`, kind: 'm', isRow: true };
  }

  private rowValue(kind: 'f' | 'm', code: string): VectorValue {
    return { code: this.row.define(`value ${code}`, kind === 'f' ? 'float' : 'int', code), kind, isRow: true };
  }

  private columnValue(kind: 'f' | 'm', code: string): VectorValue {
    return { code: this.define(kind === 'f' ? 'tw_v' : 'tw_m', code), kind, isRow: false };
  }

  private print(s: Scalar, site: VectorSite): VectorValue {
    if (isUnary(s)) return this.unary(s, site);
    if (isBinary(s)) return this.binary(s, this.value(s.a, site), this.value(s.b, site));
    switch (s.op) {
      case 'const':
        return { code: floatLiteral(s.value), kind: 'f', isRow: true };
      case 'acc':
        if (site.acc === undefined) throw new Error(`${printScalar(s)} has no meaning here: there is no contraction.`);
        return this.columnValue('f', site.acc(s.index));
      case 'rotateHalf':
        if (site.rotate === undefined)
          throw new Error(`${printScalar(s)} has no meaning here: nothing says how wide heads are.`);
        return site.rotate(s.a, this);
      case 'groupSum':
        throw new Error(`${printScalar(s)} has no meaning here: nothing sums groups of columns.`);
      case 'load':
        return this.load(s.buffer, s.access, site);
      case 'rowSum': {
        const operand = this.row.operands.get(s.buffer);
        const columns = this.row.extent(operand.columns);
        return this.rowValue(
          'f',
          `${s.by === 'max' ? 'tw_most_of' : 'tw_sum_of'}(${this.row.rowPointer(operand, s.via)}, ${columns})`,
        );
      }
      case 'segmentSum': {
        const operand = this.row.operands.get(s.buffer);
        return this.segmentSum(this.row.rowPointer(operand, s.via), s, site);
      }
      case 'rowIndex':
        return this.rowValue('f', '(float)row');
      case 'columnIndex':
        if (site.at !== undefined) return this.gathered((l) => `(float)(${columnOf(site, l)})`, site, false);
        return this.columnValue('f', `tw_float(tw_lane + tw_seti((int32_t)(${site.column})))`);
      case 'select':
        return this.select(this.value(s.condition, site), this.value(s.a, site), this.value(s.b, site));
      default:
        return s satisfies never;
    }
  }

  private unary(s: UnaryScalar, site: VectorSite): VectorValue {
    const { op } = s;
    // sin and cos evaluate their operand themselves, in double.
    if (op === 'sin' || op === 'cos') return this.angle(op, s.a, site);
    const a = this.value(s.a, site);
    if (isIn(FLOAT_FUNCTIONS, op)) {
      const { row, lanes } = FLOAT_FUNCTIONS[op];
      return a.isRow ? this.rowValue('f', row(this.rowFloat(a).code)) : this.columnValue('f', lanes(this.float(a)));
    }
    switch (op) {
      case 'toF32':
        return a.isRow ? this.rowFloat(a) : { code: this.float(a), kind: 'f', isRow: false };
      case 'not':
        return a.isRow
          ? this.rowValue('m', `!${this.rowTruth(a).code}`)
          : this.columnValue('m', `tw_not(${this.mask(a)})`);
      case 'roundF24':
      case 'tailF24':
        return this.columnValue('f', VECTOR_FUNCTIONS[op](this.float(a)));
      default:
        return op satisfies never;
    }
  }

  private binary({ op }: BinaryScalar, a: VectorValue, b: VectorValue): VectorValue {
    const isRow = a.isRow && b.isRow;
    if (isIn(FLOAT_PAIRS, op)) {
      const { kind, row, lanes } = FLOAT_PAIRS[op];
      return isRow
        ? this.rowValue(kind, row(this.rowFloat(a).code, this.rowFloat(b).code))
        : this.columnValue(kind, lanes(this.float(a), this.float(b)));
    }
    switch (op) {
      case 'and':
      case 'or':
        return isRow
          ? this.rowValue('m', `(${this.rowTruth(a).code} ${C_LOGIC[op]} ${this.rowTruth(b).code})`)
          : this.columnValue('m', `tw_${op}(${this.mask(a)}, ${this.mask(b)})`);
      case 'joinF24':
        return this.columnValue(
          'f',
          `tw_from_bits(tw_bits(${this.float(a)}) + ((tw_int(${this.float(b)}) << 24) >> 16) + tw_seti(0x80))`,
        );
      default:
        return op satisfies never;
    }
  }

  private select(condition: VectorValue, a: VectorValue, b: VectorValue): VectorValue {
    if (condition.isRow && a.isRow && b.isRow) {
      return this.rowValue(
        'f',
        `${this.rowTruth(condition).code} ? ${this.rowFloat(a).code} : ${this.rowFloat(b).code}`,
      );
    }
    return this.columnValue('f', `tw_select(${this.mask(condition)}, ${this.float(a)}, ${this.float(b)})`);
  }

  private load(name: string, access: Access, site: VectorSite): VectorValue {
    const operand = this.row.operands.get(name);
    const { dtype } = operand;
    if (access.kind === 'row' || (access.kind === 'element' && operand.columns === 1)) {
      return this.rowValue('f', `tw_s_load_${dtype}(${this.row.rowPointer(operand, access.via)})`);
    }
    const base = this.base(operand, access);
    if (access.kind === 'columnPeriodic' && access.period === 1)
      return this.rowValue('f', `tw_s_load_${dtype}(${base})`);
    const lane = (column: string): string => `tw_s_load_${dtype}(${base} + ${column})`;
    if (access.kind === 'periodic' || access.kind === 'columnPeriodic') {
      if (access.period % 16 === 0 && site.at === undefined)
        return this.columnValue('f', `tw_load_${dtype}(${base} + (${site.column}) % ${access.period})`);
      return this.gathered((l) => lane(`(${columnOf(site, l)}) % ${access.period}`), site, true);
    }
    // An unpadded operand ends with its last column, so a chunk that extends past it is read lane by lane.
    if (site.at !== undefined || (!operand.isPadded && site.lanes !== 16))
      return this.gathered((l) => lane(columnOf(site, l)), site, false);
    return this.columnValue('f', `tw_load_${dtype}(${base} + ${site.column})`);
  }

  /** C pointer to which an access adds its column. */
  private base(operand: Operand, access: Access): string {
    return access.kind === 'column' || access.kind === 'columnPeriodic'
      ? this.row.operands.base(operand)
      : this.row.rowPointer(operand, viaOf(access));
  }

  /** Parts are combined one by one. A vector that lies within one segment combines them once for all lanes. */
  private segmentSum(pointer: string, { width, parts, by }: SegmentSum, site: VectorSite): VectorValue {
    const begin = by === 'max' ? '-__builtin_inff()' : '0.0f';
    const take = (into: string, x: string): string =>
      by === 'max' ? `${into} = tw_s_most(${into}, ${x})` : `${into} += ${x}`;
    if (width % 16 === 0 && site.at === undefined) {
      const name = `v${this.counter++}`;
      this.put(
        `float ${name}s = ${begin};`,
        `for (int p_ = 0; p_ < ${parts}; p_++) ` +
          `${take(`${name}s`, `${pointer}[(${site.column}) / ${width} * ${parts} + p_]`)};`,
        `const tw_v ${name} = tw_set1(${name}s);`,
      );
      return { code: name, kind: 'f', isRow: false };
    }
    const name = `v${this.counter++}`;
    this.put(
      by === 'max'
        ? `float ${name}l[16] = { ${Array.from({ length: 16 }, () => begin).join(', ')} };`
        : `float ${name}l[16] = { 0 };`,
      `for (int l_ = 0; l_ < 16${site.lanes === 16 ? '' : ` && l_ < (${site.lanes})`}; l_++)`,
      `  for (int p_ = 0; p_ < ${parts}; p_++)`,
      `    ${take(`${name}l[l_]`, `${pointer}[(${columnOf(site, 'l_')}) / ${width} * ${parts} + p_]`)};`,
      `const tw_v ${name} = tw_load(${name}l);`,
    );
    return { code: name, kind: 'f', isRow: false };
  }

  /** A vector with the value of `lane` for each of the 16 lanes. */
  lanes(lane: (l: string) => string): string {
    return this.gathered(lane, { lanes: 16 }, true).code;
  }

  /** A vector computed lane by lane. Lanes past the last column are zero, unless computing them is safe. */
  private gathered(lane: (l: string) => string, site: Pick<VectorSite, 'lanes'>, isSafePastEnd: boolean): VectorValue {
    const name = `v${this.counter++}`;
    const bound = isSafePastEnd || site.lanes === 16 ? '' : ` && l_ < (${site.lanes})`;
    this.put(
      `float ${name}l[16] = { 0 };`,
      `for (int l_ = 0; l_ < 16${bound}; l_++) ${name}l[l_] = ${lane('l_')};`,
      `const tw_v ${name} = tw_load(${name}l);`,
    );
    return { code: name, kind: 'f', isRow: false };
  }

  private angle(op: 'sin' | 'cos', a: Scalar, site: VectorSite): VectorValue {
    return this.gathered((l) => `(float)tw_${op}(${this.double(a, site, l)})`, site, false);
  }

  private double(s: Scalar, site: VectorSite, lane: string): string {
    const column = `(${columnOf(site, lane)})`;
    return printDouble(s, {
      literal: doubleLiteral,
      rowIndex: '(double)row',
      columnIndex: `(double)${column}`,
      load: ({ buffer, access }) => {
        const operand = this.row.operands.get(buffer);
        const load = `(double)tw_s_load_${operand.dtype}`;
        if (access.kind === 'row') return `${load}(${this.row.rowPointer(operand, access.via)})`;
        const isPeriodic = access.kind === 'periodic' || access.kind === 'columnPeriodic';
        return `${load}(${this.base(operand, access)} + ${isPeriodic ? `${column} % ${access.period}` : column})`;
      },
      widened: (x) => `(double)${this.float(this.value(x, site))}[${lane}]`,
    });
  }
}

// How C writes the operators of scalar programs: of a row's numbers, and of vectors of 16 columns.

interface UnaryText {
  readonly row: (x: string) => string;
  readonly lanes: (x: string) => string;
}

const called = (name: string): UnaryText => ({
  row: (x) => `tw_s_${name}(${x})`,
  lanes: (x) => `tw_${name}(${x})`,
});

/** Functions of one float. */
export const FLOAT_FUNCTIONS = {
  // A literal may have a sign of its own.
  neg: { row: (x) => (x.startsWith('-') ? `-(${x})` : `-${x}`), lanes: (x) => `-${x}` },
  sqrt: { row: (x) => `__builtin_sqrtf(${x})`, lanes: (x) => `tw_sqrt(${x})` },
  rsqrt: { row: (x) => `1.0f / __builtin_sqrtf(${x})`, lanes: (x) => `tw_set1(1.0f) / tw_sqrt(${x})` },
  exp: called('exp'),
  log: called('log'),
  tanh: called('tanh'),
  erf: called('erf'),
  floor: called('floor'),
  roundBf16: called('round_bf16'),
  roundF20: called('round_f20'),
} as const satisfies Partial<Record<UnaryScalar['op'], UnaryText>>;

/** Functions of one float that exist for vectors alone. */
export const VECTOR_FUNCTIONS = {
  roundF24: (x) => `tw_from_bits((tw_bits(${x}) & tw_seti(-256)) | tw_seti(0x80))`,
  tailF24: (x) => `tw_float((tw_bits(${x}) >> 8) & tw_seti(255))`,
} as const satisfies Partial<Record<UnaryScalar['op'], (x: string) => string>>;

interface BinaryText {
  /** A float, or a truth value. */
  readonly kind: 'f' | 'm';
  readonly row: (x: string, y: string) => string;
  readonly lanes: (x: string, y: string) => string;
}

const arithmetic = (op: keyof typeof C_ARITHMETIC): BinaryText => {
  const print = (x: string, y: string): string => `${x} ${C_ARITHMETIC[op]} ${y}`;
  return { kind: 'f', row: print, lanes: print };
};
const comparison = (op: keyof typeof C_COMPARE): BinaryText => ({
  kind: 'm',
  row: (x, y) => `(${x} ${C_COMPARE[op]} ${y})`,
  lanes: (x, y) => `tw_${op}(${x}, ${y})`,
});
const extreme = (op: 'max' | 'min'): BinaryText => ({
  kind: 'f',
  row: (x, y) => `tw_s_${op}(${x}, ${y})`,
  lanes: (x, y) => `tw_${op}(${x}, ${y})`,
});

/** Functions of two floats. */
export const FLOAT_PAIRS = {
  add: arithmetic('add'),
  sub: arithmetic('sub'),
  mul: arithmetic('mul'),
  div: arithmetic('div'),
  le: comparison('le'),
  lt: comparison('lt'),
  eq: comparison('eq'),
  max: extreme('max'),
  min: extreme('min'),
} as const satisfies Partial<Record<BinaryScalar['op'], BinaryText>>;

export const isIn = <T extends object>(table: T, op: string): op is Extract<keyof T, string> => op in table;
