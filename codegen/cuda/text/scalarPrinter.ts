/**
 * Scalar programs printed as CUDA: straight-line float code for a few adjacent columns of one row. Common
 * subexpressions are computed once. Values that depend on the row alone are computed once per row.
 */
import type { Output } from '../../../ir/kernel.js';
import {
  type Access,
  type BinaryScalar,
  isBinary,
  isUnary,
  operands,
  originOf,
  printScalar,
  type Scalar,
  type SegmentSum,
  type UnaryOp,
  type UnaryScalar,
  viaOf,
} from '../../../ir/scalar.js';
import { printDouble } from '../../scalarPrograms.js';
import { plainName } from './names.js';
import { type CudaOperands, type CudaRowScope, rowOffset } from './operands.js';
import { doubleLiteral, floatLiteral } from './statements.js';

/** One or two adjacent columns for which a program is evaluated. The first of two is even. */
export interface LaneSite {
  /** Distinguishes sites of one body. */
  readonly id: string;
  /** Appended to the names of values, where a body has several sites. */
  readonly suffix?: string;
  /** C expression (int) of the first logical column. */
  readonly column: string;
  readonly lanes: 1 | 2;
  /**
   * C expression (primary) of the accumulator: a float, or of two columns a float2. `index` 1 is the second matrix of
   * an interleaved pair.
   */
  readonly acc?: (index: 0 | 1) => string;
  /** C expressions (float) of values that a group of columns shares, by printScalar of their program. */
  readonly given?: ReadonlyMap<string, string>;
  /**
   * rotateHalf(a) at this site is a at the partner's columns, negated if isNegated, or the C truth value that it
   * prints, is true.
   */
  readonly rotate?: { readonly partner: () => LaneSite; readonly isNegated: boolean | string };
  /**
   * C expression of a load if the caller has the value already, of both columns if there are two: float or float2, of
   * bytes unsigned or uint2. Undefined: load from memory.
   */
  readonly loaded?: (buffer: string, access: Access) => string | undefined;
}

/** A printed value: a C expression of all columns of its site, or of its row. */
interface LaneValue {
  readonly code: string;
  readonly kind: CKind;
  /** The expression is of two columns. */
  readonly isPair: boolean;
  /** The same in every column of a row. */
  readonly isRow: boolean;
  /** The expression is no variable yet, and reads memory. */
  readonly reads: boolean;
  /** Marks of the ops that the expression computes, where it is no variable yet. */
  readonly marks: readonly string[];
}

/** A C expression, and the marks of the statement that it stands in. */
export interface Printed {
  readonly code: string;
  readonly marks: string;
}
const printed = ({ code, marks }: LaneValue): Printed => ({ code, marks: [...new Set(marks)].join('') });

/** `f`: float; `m`: int truth value; `u`: unsigned, a byte. */
type CKind = 'f' | 'm' | 'u';
const C_KINDS: Readonly<Record<CKind, string>> = { f: 'float', m: 'int', u: 'unsigned' };
const C_PAIRS: Readonly<Record<CKind, string>> = { f: 'float2', m: 'int2', u: 'uint2' };

/** Two columns of which each is a C expression of its own. */
const pairOf = (kind: CKind, x: string, y: string): string => `${C_PAIRS[kind]}{ ${x}, ${y} }`;
/** The same of floats. */
export const floatPair = (x: string, y: string): string => pairOf('f', x, y);

/** C expression of the pair of products of a group, of which `acc` gives the two. */
export function productPair(acc: (group: string, lane: number) => string, group: string): string {
  const [x, y] = [acc(group, 0), acc(group, 1)];
  const at = /^products\((.*), 0\)$/.exec(x)?.[1];
  return at === undefined ? floatPair(x, y) : `pair(products, ${at})`;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** C expressions of the columns of a pair: of a variable's, or of those that pairOf was given. */
const lanesOf = (pair: string): readonly [string, string] => [`${pair}.x`, `${pair}.y`];

/** The statements of one site, or of two that need each other's values. */
export class LaneBody {
  readonly lines: string[] = [];
  readonly row: CudaRowScope;
  private readonly values = new Map<string, LaneValue>();
  private readonly uses: ReadonlyMap<string, number>;

  /** `programs`: all that is printed here. What only one expression of them uses needs no name of its own. */
  constructor(row: CudaRowScope, programs: readonly Scalar[] = []) {
    this.row = row;
    this.uses = usesOf(programs);
  }

  /** C expression of `s` at `site`: float, or float2 of two columns. Reads no memory: that is done when it is there. */
  expression(s: Scalar, site: LaneSite): Printed {
    return printed(this.settled(this.asFloat(this.value(s, site)), s, site));
  }

  /** The same for a program that produces bytes: unsigned, or uint2. */
  byteExpression(s: Scalar, site: LaneSite): Printed {
    return printed(this.settled(this.asByte(this.value(s, site)), s, site));
  }

  /** `s` at `site` as floats: one C expression per lane. */
  floats(s: Scalar, site: LaneSite): string[] {
    return this.lanes(this.asFloat(this.value(s, site)), s, site);
  }

  /** The same for a program that produces bytes. */
  bytes(s: Scalar, site: LaneSite): string[] {
    return this.lanes(this.asByte(this.value(s, site)), s, site);
  }

  private lanes(value: LaneValue, s: Scalar, site: LaneSite): string[] {
    if (site.lanes === 1) return [this.settled(value, s, site).code];
    if (!value.isPair) return [value.code, value.code];
    return [...lanesOf(this.named(value, s, site).code)];
  }

  /** `value` as pairs have it where there are two columns, and without reads. */
  private settled(value: LaneValue, s: Scalar, site: LaneSite): LaneValue {
    const whole =
      site.lanes === 2 && !value.isPair
        ? { ...value, code: pairOf(value.kind, value.code, value.code), isPair: true }
        : value;
    return whole.reads ? this.named(whole, s, site) : whole;
  }

  private asFloat(value: LaneValue): LaneValue {
    return value.kind === 'f' ? value : { ...value, kind: 'f', code: `to_float(${value.code})` };
  }

  private asByte(value: LaneValue): LaneValue {
    return value.kind === 'u' ? value : { ...value, kind: 'u', code: `to_byte(${this.asFloat(value).code})` };
  }

  /** Prints `s` at `site`; the same expression at the same site is printed once. */
  private value(s: Scalar, site: LaneSite, parent?: Scalar): LaneValue {
    const program = keyOf(s);
    const key = keyAt(s, site);
    const known = this.values.get(key);
    if (known !== undefined) return known;
    const [ofRow, ofGroup] = [this.row.givenValue(s), site.given?.get(program)];
    const value = this.row.within(s, (): LaneValue => {
      if (ofRow !== undefined) return this.rowValue('f', ofRow, s);
      if (ofGroup !== undefined) return plain(ofGroup, 'f');
      const own = this.print(s, site);
      if (isLeaf(own.code) || !this.isNamed(s, parent)) return { ...own, marks: [...own.marks, this.row.mark] };
      return own.isRow ? this.rowValue(own.kind, own.code, s) : this.named(own, s, site);
    });
    this.values.set(key, value);
    return value;
  }

  /** Whether `s` is a variable: what several expressions use, and what has a name in the graph. */
  private isNamed(s: Scalar, parent: Scalar | undefined): boolean {
    if ((this.uses.get(keyOf(s)) ?? 2) > 1) return true;
    // What is only another form of a value stands where it is stored; all else is computed before the first store.
    if (parent === undefined) return s.op !== 'roundBf16' && s.op !== 'roundF24' && s.op !== 'tailF24';
    const origin = originOf(s);
    if (origin === undefined || origin === originOf(parent)) return false;
    // A value that nobody has named has the name of its operator and a number in the graph.
    return plainName(origin).replace(/_.*$/, '') !== s.op;
  }

  /** The variable that has a value. */
  private named(value: LaneValue, s: Scalar, site: LaneSite): LaneValue {
    if (NAME.test(value.code)) return value;
    const name = this.row.nameOf(originOf(s) ?? ('buffer' in s ? s.buffer : undefined), site.suffix);
    const { marks } = printed({ ...value, marks: [this.row.mark, ...value.marks] });
    this.lines.push(`const ${(value.isPair ? C_PAIRS : C_KINDS)[value.kind]} ${name} = ${value.code};${marks}`);
    const own = { ...value, code: name, reads: false, marks: [] };
    this.values.set(keyAt(s, site), own);
    return own;
  }

  private rowValue(kind: CKind, code: string, s: Scalar): LaneValue {
    const name = this.row.define(`value ${code}`, C_KINDS[kind], code, originOf(s));
    return { ...plain(name, kind), isRow: true };
  }

  /** A function of `parts`, which says of pairs what it says of one column. */
  private call(kind: CKind, name: string, parts: readonly LaneValue[]): LaneValue {
    return {
      code: `${name}(${parts.map(({ code }) => code).join(', ')})`,
      kind,
      isPair: parts.some(({ isPair }) => isPair),
      isRow: parts.every(({ isRow }) => isRow),
      reads: parts.some(({ reads }) => reads),
      marks: parts.flatMap(({ marks }) => marks),
    };
  }

  /** An expression of each column. */
  private each(kind: CKind, site: LaneSite, reads: boolean, code: (lane: number) => string): LaneValue {
    const isPair = site.lanes === 2;
    return { ...plain(isPair ? pairOf(kind, code(0), code(1)) : code(0), kind), isPair, reads };
  }

  private print(s: Scalar, site: LaneSite): LaneValue {
    if (isUnary(s)) return this.unary(s, site);
    if (isBinary(s)) return this.binary(s, site);
    switch (s.op) {
      case 'const':
        return { ...plain(floatLiteral(s.value), 'f'), isRow: true };
      case 'acc': {
        const { acc } = site;
        if (acc === undefined) throw new Error(`${printScalar(s)} has no meaning here: there is no contraction.`);
        return { ...plain(acc(s.index), 'f'), isPair: site.lanes === 2 };
      }
      case 'rotateHalf':
        return this.rotated(s, site);
      case 'groupSum':
        throw new Error(`${printScalar(s)} has no meaning here: nothing sums groups of columns.`);
      case 'load':
        return this.load(s.buffer, s.access, site);
      case 'rowSum': {
        const operand = this.row.operands.get(s.buffer);
        const from = this.row.rowPointer(operand, s.via);
        const [call, name] = s.by === 'max' ? ['row_max', 'largest'] : ['row_sum', 'sum'];
        const { sums } = this.row;
        const how = sums === undefined ? call : `${sums}.${name}`;
        return this.ofRow('f', `${how}(${from}, ${operand.columns})`, `${s.buffer}_${name}`);
      }
      case 'segmentSum':
        return this.segmentSum(s, site);
      case 'rowIndex':
        return this.ofRow('f', `(float)(${this.row.row})`, 'row_number');
      case 'columnIndex':
        return this.each('f', site, false, (lane) => `(float)(${columnAt(site, lane)})`);
      case 'select': {
        const condition = this.truth(this.value(s.condition, site, s));
        const [a, b] = [s.a, s.b].map((x) => this.asFloat(this.value(x, site, s)));
        return this.call('f', 'select', [condition, a!, b!]);
      }
      default:
        return s satisfies never;
    }
  }

  private truth(value: LaneValue): LaneValue {
    return value.kind === 'm' ? value : this.call('m', 'is_true', [this.asFloat(value)]);
  }

  /** A value of the row that is read from memory or the row itself: once for all columns. */
  private ofRow(kind: CKind, code: string, called: string): LaneValue {
    const name = this.row.define(`value ${code}`, C_KINDS[kind], code, called);
    return { ...plain(name, kind), isRow: true };
  }

  private rotated(s: Extract<Scalar, { op: 'rotateHalf' }>, site: LaneSite): LaneValue {
    const { rotate } = site;
    if (rotate === undefined)
      throw new Error(`rotateHalf(${printScalar(s.a)}) has no meaning here: nothing says how wide heads are.`);
    const value = this.asFloat(this.value(s.a, rotate.partner(), s));
    const { isNegated } = rotate;
    if (isNegated === false) return value;
    const negative = this.call('f', 'neg', [value]);
    if (isNegated === true) return negative;
    const { code } = this.named(value, s.a, rotate.partner());
    return { ...negative, code: `select(${isNegated}, neg(${code}), ${code})`, reads: false };
  }

  private unary(s: UnaryScalar, site: LaneSite): LaneValue {
    const { op } = s;
    // sin and cos evaluate their operand themselves, in double.
    if (op === 'sin' || op === 'cos')
      return this.each(
        'f',
        site,
        true,
        (lane) => `(float)${op === 'sin' ? 'sine' : 'cosine'}(${this.double(s.a, site, lane)})`,
      );
    const a = this.value(s.a, site, s);
    if (op === 'not') return this.call('m', 'is_false', [this.truth(a)]);
    const x = this.asFloat(a);
    return op === 'toF32' ? x : this.call(op === 'tailF24' ? 'u' : 'f', UNARY_NAMES[op], [x]);
  }

  private binary(s: BinaryScalar, site: LaneSite): LaneValue {
    const [a, b] = [this.value(s.a, site, s), this.value(s.b, site, s)];
    const { op } = s;
    switch (op) {
      // Calls, because a compiler may contract a·b + c to one rounding depending on the surrounding text, which would
      // change results.
      case 'add':
      case 'sub':
      case 'mul':
      case 'max':
      case 'min':
        return this.call('f', op, [this.asFloat(a), this.asFloat(b)]);
      case 'div':
        return this.call('f', isOnePlusExp(s.b) ? 'div_sigmoid' : 'div', [this.asFloat(a), this.asFloat(b)]);
      case 'le':
      case 'lt':
      case 'eq':
        return this.call('m', COMPARE[op], [this.asFloat(a), this.asFloat(b)]);
      case 'and':
      case 'or':
        return this.call('m', op === 'and' ? 'both' : 'either', [this.truth(a), this.truth(b)]);
      case 'joinF24':
        return this.call('f', 'join_f24', [this.asFloat(a), this.asByte(b)]);
      default:
        return op satisfies never;
    }
  }

  /** Parts are combined one by one. Two lanes of an even segment belong to the same segment. */
  private segmentSum(s: SegmentSum, site: LaneSite): LaneValue {
    const { width, parts, by } = s;
    const { mark } = this.row;
    const pointer = this.row.rowPointer(this.row.operands.get(s.buffer), s.via);
    const sum = (lane: number): string => {
      const name = this.row.nameOf(originOf(s), `${site.suffix ?? ''}${lane === 0 ? '' : '_next'}`);
      const part = `load(${pointer} + (${columnAt(site, lane)}) / ${width} * ${parts} + part_)`;
      const taken = by === 'max' ? `${name} = max(${name}, ${part});` : `${name} += ${part};`;
      this.lines.push(
        `float ${name} = ${by === 'max' ? '-infinity()' : '0.0f'};${mark}`,
        `for (int part_ = 0; part_ < ${parts}; part_++) ${taken}${mark}`,
      );
      return name;
    };
    const first = sum(0);
    return site.lanes === 1 || width % 2 === 0
      ? plain(first, 'f')
      : { ...plain(floatPair(first, sum(1)), 'f'), isPair: true };
  }

  private load(name: string, access: Access, site: LaneSite): LaneValue {
    const operand = this.row.operands.get(name);
    const kind = operand.dtype === 'u8' ? 'u' : 'f';
    const known = site.loaded?.(name, access);
    if (known !== undefined) return { ...plain(known, kind), isPair: site.lanes === 2 };
    if (access.kind === 'row' || (access.kind === 'element' && operand.columns === 1))
      return this.ofRow(kind, `load(${this.row.rowPointer(operand, access.via)})`, `${name}_value`);
    if (access.kind === 'element' && operand.columnStride !== 1) {
      const first = this.row.firstOfRow(operand, access.via);
      const element = (lane: number): string => `${first} + (${columnAt(site, lane)}) * ${operand.columnStride}`;
      return this.each(kind, site, true, (lane) => `load(${element(lane)})`);
    }
    if (access.kind === 'columnPeriodic' && access.period === 1)
      return this.ofRow(kind, `load(${this.row.operands.base(operand)})`, `${name}_value`);
    const isVector = access.kind === 'column' || access.kind === 'columnPeriodic';
    const isPeriodic = access.kind === 'periodic' || access.kind === 'columnPeriodic';
    const base = isVector ? this.row.operands.base(operand) : this.row.rowPointer(operand, viaOf(access));
    const at = (lane: number): string =>
      isPeriodic ? modulo(`(${columnAt(site, lane)})`, access.period) : columnAt(site, lane);
    const isPaired =
      site.lanes === 2 && (isVector || operand.stride % 2 === 0) && (!isPeriodic || access.period % 2 === 0);
    if (!isPaired) return this.each(kind, site, true, (lane) => `load(${base} + ${at(lane)})`);
    const code = kind === 'u' ? `bytes_of(load2(${base} + ${at(0)}))` : `load2(${base} + ${at(0)})`;
    return { ...plain(code, kind), isPair: true, reads: true };
  }

  private double(s: Scalar, site: LaneSite, lane: number): string {
    return printDouble(s, {
      literal: doubleLiteral,
      rowIndex: `(double)(${this.row.row})`,
      columnIndex: `(double)(${columnAt(site, lane)})`,
      widened: (x) => `(double)${this.floats(x, site)[lane]!}`,
    });
  }
}

const UNARY_NAMES = {
  neg: 'neg',
  exp: 'exp',
  log: 'log',
  tanh: 'tanh',
  erf: 'erf',
  floor: 'floor',
  sqrt: 'sqrt',
  rsqrt: 'inverse_sqrt',
  roundBf16: 'round_bf16',
  roundF20: 'round_f20',
  roundF24: 'round_f24',
  tailF24: 'tail_f24',
} as const satisfies Partial<Record<UnaryOp, string>>;
const COMPARE = { le: 'at_most', lt: 'below', eq: 'equal' } as const;

/** Names, members and literals: as short where they are used as a name would be. */
const isLeaf = (code: string): boolean => /^-?[\w.]+$/.test(code);

/** A value of one column that needs no memory. */
const plain = (code: string, kind: CKind): LaneValue => ({
  code,
  kind,
  isPair: false,
  isRow: false,
  reads: false,
  marks: [],
});

/** printScalar, once for each expression. */
const KEYS = new WeakMap<Scalar, string>();
function keyOf(s: Scalar): string {
  const known = KEYS.get(s);
  if (known !== undefined) return known;
  const key = printScalar(s);
  KEYS.set(s, key);
  return key;
}

const keyAt = (s: Scalar, { id }: LaneSite): string => `${id} ${keyOf(s)}`;

/** How many different expressions use each one of `programs`, by its key; programs count as used once more. */
function usesOf(programs: readonly Scalar[]): ReadonlyMap<string, number> {
  const uses = new Map<string, number>();
  const count = (s: Scalar): void => {
    const key = keyOf(s);
    const known = uses.get(key);
    uses.set(key, (known ?? 0) + 1);
    if (known === undefined) operands(s).forEach(count);
  };
  programs.forEach(count);
  return uses;
}

/**
 * A non-negative column modulo a constant: a mask if the constant is a power of two. Compilers understand masks of
 * sums, so columns that differ by a period are loaded once.
 */
export const modulo = (column: string, period: number): string =>
  (period & (period - 1)) === 0 ? `(${column} & ${period - 1})` : `${column} % ${period}`;

/** The column of a lane's value. */
export const columnAt = (site: LaneSite, lane: number): string =>
  lane === 0 ? site.column : `${site.column} + ${lane}`;

/** 1 + exp(x): a divisor of at least 1, for which fast division is accurate enough. */
function isOnePlusExp(s: Scalar): boolean {
  if (s.op !== 'add') return false;
  const isOne = (x: Scalar): boolean => x.op === 'const' && x.value === 1;
  return (isOne(s.a) && s.b.op === 'exp') || (isOne(s.b) && s.a.op === 'exp');
}

// Values of outputs at a site, and their stores to global memory.

/**
 * The value to compute for an output. A store rounds by itself, so a preceding rounding to the same type is dropped.
 */
function valueOf(output: Output, operands: CudaOperands): Scalar {
  const { value } = output;
  return output.kind === 'store' && value.op === 'roundBf16' && operands.get(output.buffer).dtype === 'bf16'
    ? value.a
    : value;
}

/** C expression of an output at a site, of both columns if there are two: floats, or the stored bytes. */
export const programValue = (output: Output, body: LaneBody, site: LaneSite): Printed =>
  body.row.operands.get(output.buffer).dtype === 'u8'
    ? body.byteExpression(output.value, site)
    : body.expression(valueOf(output, body.row.operands), site);

/** The same of a site's columns, one by one. */
export const programValues = (output: Output, body: LaneBody, site: LaneSite): string[] =>
  body.row.operands.get(output.buffer).dtype === 'u8'
    ? body.bytes(output.value, site)
    : body.floats(valueOf(output, body.row.operands), site);

/**
 * Computes an output and gives the statement that stores it: one value at a site, or two at an even column. The index
 * of an output selects its row; −1 selects none.
 */
export function storeLine(output: Output & { readonly kind: 'store' }, body: LaneBody, site: LaneSite): string {
  const { row: scope } = body;
  const operand = scope.operands.get(output.buffer);
  const { via } = output;
  const index = via === undefined ? '' : scope.rowIndex(via);
  const guard = via === undefined ? '' : `if (${index} >= 0) `;
  const pointer =
    via === undefined
      ? scope.rowPointer(operand, undefined)
      : `${scope.operands.base(operand)} + ${rowOffset(operand, index)}`;
  if (operand.columns === 1) return `${guard}store(${pointer}, ${programValues(output, body, site)[0]!});`;
  if (operand.columnStride !== 1) {
    const stores = programValues(output, body, site).map((value, lane) => {
      const at = `${pointer} + (${columnAt(site, lane)}) * ${operand.columnStride}`;
      return `store(${at}, ${value});`;
    });
    return `${guard}{ ${stores.join(' ')} }`;
  }
  const width = site.lanes === 2 ? '2' : '';
  const { code, marks } = programValue(output, body, site);
  return `${guard}store${width}(${pointer} + ${site.column}, ${code});${marks}`;
}
