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
  printScalar,
  type Scalar,
  type SegmentSum,
  type UnaryScalar,
  viaOf,
} from '../../../ir/scalar.js';
import { C_COMPARE, C_LOGIC, printDouble } from '../../scalarPrograms.js';
import { type CudaOperands, type CudaRowScope, type Operand, rowOffset } from './operands.js';
import { doubleLiteral, floatLiteral } from './statements.js';

/** One or two adjacent columns for which a program is evaluated. The first of two is even. */
export interface LaneSite {
  /** Distinguishes sites of one body. */
  readonly id: string;
  /** C expression (int) of the first logical column. */
  readonly column: string;
  readonly lanes: 1 | 2;
  /**
   * C expression (primary) of the accumulator at column + lane. `index` 1 is the second matrix of an interleaved pair.
   */
  readonly acc?: (index: 0 | 1, lane: number) => string;
  /** C expressions (float) of values that a group of columns shares, by printScalar of their program. */
  readonly given?: ReadonlyMap<string, string>;
  /**
   * rotateHalf(a) at this site is a at the partner's columns, negated if isNegated, or the C truth value that it
   * prints, is true.
   */
  readonly rotate?: { readonly partner: () => LaneSite; readonly isNegated: boolean | string };
  /** C expression of a load at column + lane if the caller has the value already; undefined: load from memory. */
  readonly loaded?: (buffer: string, access: Access, lane: number) => string | undefined;
}

/** A printed value: one C expression per lane (one for all lanes if `isRow`). */
export interface LaneValue {
  readonly codes: readonly string[];
  readonly kind: CKind;
  readonly isRow: boolean;
}

/** `f`: float; `m`: int truth value; `u`: unsigned, a byte. */
type CKind = 'f' | 'm' | 'u';
const C_KINDS: Readonly<Record<CKind, string>> = { f: 'float', m: 'int', u: 'unsigned' };

/** The statements of one site, or of two that need each other's values. */
export class LaneBody {
  readonly lines: string[] = [];
  readonly row: CudaRowScope;
  private readonly prefix: string;
  private readonly values = new Map<string, LaneValue>();
  private counter = 0;

  constructor(row: CudaRowScope, prefix = 'v') {
    this.row = row;
    this.prefix = prefix;
  }

  /** Prints `s` at `site`; the same expression at the same site is printed once. */
  value(s: Scalar, site: LaneSite): LaneValue {
    const key = `${site.id} ${printScalar(s)}`;
    const known = this.values.get(key);
    if (known !== undefined) return known;
    const [ofRow, ofGroup] = [this.row.givenValue(s), site.given?.get(printScalar(s))];
    const value = this.row.within(s, (): LaneValue => {
      if (ofRow !== undefined) return this.rowValue('f', ofRow);
      return ofGroup === undefined ? this.print(s, site) : { codes: [ofGroup, ofGroup], kind: 'f', isRow: false };
    });
    this.values.set(key, value);
    return value;
  }

  /** `s` at `site` as floats: one C expression per lane. */
  floats(s: Scalar, site: LaneSite): string[] {
    const value = this.value(s, site);
    return Array.from({ length: site.lanes }, (_, lane) => floatOf(value, lane));
  }

  /** The same for a program that produces bytes. */
  bytes(s: Scalar, site: LaneSite): string[] {
    const value = this.value(s, site);
    return Array.from({ length: site.lanes }, (_, lane) => byteOf(value, lane));
  }

  /** Adds statements of the expression that is being printed. */
  private put(...lines: readonly string[]): void {
    this.lines.push(...lines.map((line) => line + this.row.mark));
  }

  define(type: string, code: string): string {
    const name = `${this.prefix}${this.counter++}`;
    this.put(`const ${type} ${name} = ${code};`);
    return name;
  }

  private rowValue(kind: CKind, code: string): LaneValue {
    return { codes: [this.row.define(`value ${code}`, C_KINDS[kind], code)], kind, isRow: true };
  }

  /** A function of `parts`, computed lane by lane, or once if no part differs between lanes. */
  private each(kind: CKind, lanes: number, parts: readonly LaneValue[], code: (lane: number) => string): LaneValue {
    if (parts.length > 0 && parts.every((part) => part.isRow)) return this.rowValue(kind, code(0));
    const codes = Array.from({ length: lanes }, (_, lane) => this.define(C_KINDS[kind], code(lane)));
    return { codes, kind, isRow: false };
  }

  private print(s: Scalar, site: LaneSite): LaneValue {
    if (isUnary(s)) return this.unary(s, site);
    if (isBinary(s)) return this.binary(s, this.value(s.a, site), this.value(s.b, site), site);
    switch (s.op) {
      case 'const':
        return { codes: [floatLiteral(s.value)], kind: 'f', isRow: true };
      case 'acc': {
        const { acc } = site;
        if (acc === undefined) throw new Error(`${printScalar(s)} has no meaning here: there is no contraction.`);
        return { codes: Array.from({ length: site.lanes }, (_, lane) => acc(s.index, lane)), kind: 'f', isRow: false };
      }
      case 'rotateHalf':
        return this.rotated(s.a, site);
      case 'groupSum':
        throw new Error(`${printScalar(s)} has no meaning here: nothing sums groups of columns.`);
      case 'load':
        return this.load(s.buffer, s.access, site);
      case 'rowSum': {
        const operand = this.row.operands.get(s.buffer);
        return this.rowValue(
          'f',
          `${s.by === 'max' ? 'row_max' : 'row_sum'}(${this.row.rowPointer(operand, s.via)}, ${operand.columns})`,
        );
      }
      case 'segmentSum': {
        const operand = this.row.operands.get(s.buffer);
        return this.segmentSum(this.row.rowPointer(operand, s.via), s, site);
      }
      case 'rowIndex':
        return this.rowValue('f', `(float)(${this.row.row})`);
      case 'columnIndex':
        return this.each('f', site.lanes, [], (lane) => `(float)(${columnAt(site, lane)})`);
      case 'select': {
        const [condition, a, b] = [this.value(s.condition, site), this.value(s.a, site), this.value(s.b, site)];
        return this.each(
          'f',
          site.lanes,
          [condition, a, b],
          (l) => `${truthOf(condition, l)} ? ${floatOf(a, l)} : ${floatOf(b, l)}`,
        );
      }
      default:
        return s satisfies never;
    }
  }

  private rotated(a: Scalar, site: LaneSite): LaneValue {
    const { rotate } = site;
    if (rotate === undefined)
      throw new Error(`rotateHalf(${printScalar(a)}) has no meaning here: nothing says how wide heads are.`);
    const value = this.value(a, rotate.partner());
    const { isNegated } = rotate;
    if (isNegated === false) return value;
    return this.each('f', site.lanes, [value], (lane) => {
      const code = floatOf(value, lane);
      return isNegated === true ? `-(${code})` : `${isNegated} ? -(${code}) : ${code}`;
    });
  }

  private unary(s: UnaryScalar, site: LaneSite): LaneValue {
    const { op } = s;
    // sin and cos evaluate their operand themselves, in double.
    if (op === 'sin' || op === 'cos')
      return this.each('f', site.lanes, [], (lane) => `(float)${op}(${this.double(s.a, site, lane)})`);
    const a = this.value(s.a, site);
    const print = (kind: CKind, code: (x: string) => string): LaneValue =>
      this.each(kind, site.lanes, [a], (lane) => code(floatOf(a, lane)));
    switch (op) {
      case 'toF32':
        return a.kind === 'f' ? a : print('f', (x) => x);
      case 'not':
        return this.each('m', site.lanes, [a], (lane) => `!${truthOf(a, lane)}`);
      case 'neg':
        return print('f', (x) => `-(${x})`);
      case 'exp':
        return print('f', (x) => `expf(${x})`);
      case 'log':
        return print('f', (x) => `logf(${x})`);
      case 'tanh':
        return print('f', (x) => `tanhf(${x})`);
      case 'erf':
        return print('f', (x) => `erff(${x})`);
      case 'sqrt':
        return print('f', (x) => `sqrtf(${x})`);
      case 'rsqrt':
        return print('f', (x) => `1.0f / sqrtf(${x})`);
      case 'roundBf16':
        return print('f', (x) => `round_bf16(${x})`);
      case 'roundF20':
        return print('f', (x) => `round_f20(${x})`);
      case 'roundF24':
        return print('f', (x) => `round_f24(${x})`);
      case 'tailF24':
        return print('u', (x) => `tail_f24(${x})`);
      default:
        return op satisfies never;
    }
  }

  private binary({ op, b: divisor }: BinaryScalar, a: LaneValue, b: LaneValue, site: LaneSite): LaneValue {
    const print = (kind: 'f' | 'm', code: (x: string, y: string) => string): LaneValue =>
      this.each(kind, site.lanes, [a, b], (lane) => code(floatOf(a, lane), floatOf(b, lane)));
    switch (op) {
      // Calls, because a compiler may contract a·b + c to one rounding depending on the surrounding text, which would
      // change results.
      case 'add':
      case 'sub':
      case 'mul':
      case 'max':
      case 'min':
        return print('f', (x, y) => `${op}(${x}, ${y})`);
      case 'div':
        return isOnePlusExp(divisor)
          ? print('f', (x, y) => `div_sigmoid(${x}, ${y})`)
          : print('f', (x, y) => `${x} / ${y}`);
      case 'le':
      case 'lt':
      case 'eq':
        return print('m', (x, y) => `(${x} ${C_COMPARE[op]} ${y})`);
      case 'and':
      case 'or':
        return this.each('m', site.lanes, [a, b], (lane) => `(${truthOf(a, lane)} ${C_LOGIC[op]} ${truthOf(b, lane)})`);
      case 'joinF24':
        return this.each('f', site.lanes, [a, b], (lane) => `join_f24(${floatOf(a, lane)}, ${byteOf(b, lane)})`);
      default:
        return op satisfies never;
    }
  }

  /** Parts are combined one by one. Two lanes of an even segment belong to the same segment. */
  private segmentSum(pointer: string, { width, parts, by }: SegmentSum, site: LaneSite): LaneValue {
    const sum = (lane: number): string => {
      const name = `${this.prefix}${this.counter++}`;
      const part = `load(${pointer} + (${columnAt(site, lane)}) / ${width} * ${parts} + p_)`;
      this.put(
        `float ${name} = ${by === 'max' ? '-infinity()' : '0.0f'};`,
        `for (int p_ = 0; p_ < ${parts}; p_++) ` +
          (by === 'max' ? `${name} = max(${name}, ${part});` : `${name} += ${part};`),
      );
      return name;
    };
    const first = sum(0);
    const codes = site.lanes === 1 ? [first] : [first, width % 2 === 0 ? first : sum(1)];
    return { codes, kind: 'f', isRow: false };
  }

  private load(name: string, access: Access, site: LaneSite): LaneValue {
    const operand = this.row.operands.get(name);
    const { dtype } = operand;
    const kind = dtype === 'u8' ? 'u' : 'f';
    const known = Array.from({ length: site.lanes }, (_, lane) => site.loaded?.(name, access, lane));
    if (known.every((code) => code !== undefined)) return { codes: known, kind, isRow: false };
    if (access.kind === 'row' || (access.kind === 'element' && operand.columns === 1)) {
      return this.rowValue(kind, `load(${this.row.rowPointer(operand, access.via)})`);
    }
    if (access.kind === 'element' && operand.columnStride !== 1) {
      const first = this.row.firstOfRow(operand, access.via);
      const element = (lane: number): string => `${first} + (${columnAt(site, lane)}) * ${operand.columnStride}`;
      return this.each(kind, site.lanes, [], (lane) => `load(${element(lane)})`);
    }
    const isVector = access.kind === 'column' || access.kind === 'columnPeriodic';
    const isPeriodic = access.kind === 'periodic' || access.kind === 'columnPeriodic';
    const base = isVector ? this.row.operands.base(operand) : this.row.rowPointer(operand, viaOf(access));
    const at = (lane: number): string =>
      isPeriodic ? modulo(`(${columnAt(site, lane)})`, access.period) : columnAt(site, lane);
    const isPaired =
      site.lanes === 2 && (isVector || operand.stride % 2 === 0) && (!isPeriodic || access.period % 2 === 0);
    if (!isPaired) return this.each(kind, site.lanes, [], (lane) => `load(${base} + ${at(lane)})`);
    const pair = this.define(kind === 'u' ? 'uchar2' : 'float2', `load2(${base} + ${at(0)})`);
    return { codes: [`${pair}.x`, `${pair}.y`], kind, isRow: false };
  }

  private double(s: Scalar, site: LaneSite, lane: number): string {
    return printDouble(s, {
      literal: doubleLiteral,
      rowIndex: `(double)(${this.row.row})`,
      columnIndex: `(double)(${columnAt(site, lane)})`,
      widened: (x) => `(double)${floatOf(this.value(x, site), lane)}`,
    });
  }
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
const codeOf = (value: LaneValue, lane: number): string => (value.isRow ? value.codes[0]! : value.codes[lane]!);
const floatOf = (value: LaneValue, lane: number): string =>
  value.kind === 'f' ? codeOf(value, lane) : `(float)${codeOf(value, lane)}`;
const truthOf = (value: LaneValue, lane: number): string =>
  value.kind === 'm' ? codeOf(value, lane) : `(${floatOf(value, lane)} != 0.0f)`;
const byteOf = (value: LaneValue, lane: number): string =>
  value.kind === 'u' ? codeOf(value, lane) : `(unsigned)(${codeOf(value, lane)})`;

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

/** C expressions of an output's values at a site, one per lane: floats, or the source of the stored bytes. */
export const programValues = (output: Output, body: LaneBody, site: LaneSite): string[] =>
  body.row.operands.get(output.buffer).dtype === 'u8'
    ? body.bytes(output.value, site)
    : body.floats(valueOf(output, body.row.operands), site);

/** Stores one value at a site, or two at an even column. `via`: the index that selects the row; −1 selects none. */
export function storeLine(
  operand: Operand,
  scope: CudaRowScope,
  site: LaneSite,
  values: readonly string[],
  via?: string,
): string {
  const index = via === undefined ? '' : scope.rowIndex(via);
  const guard = via === undefined ? '' : `if (${index} >= 0) `;
  const pointer =
    via === undefined
      ? scope.rowPointer(operand, undefined)
      : `${scope.operands.base(operand)} + ${rowOffset(operand, index)}`;
  if (operand.columns === 1) return `${guard}store(${pointer}, ${values[0]!});`;
  if (operand.columnStride !== 1) {
    const stores = values.map((value, lane) => {
      const at = `${pointer} + (${columnAt(site, lane)}) * ${operand.columnStride}`;
      return `store(${at}, ${value});`;
    });
    return `${guard}{ ${stores.join(' ')} }`;
  }
  const width = values.length === 2 ? '2' : '';
  return `${guard}store${width}(${pointer} + ${site.column}, ${values.join(', ')});`;
}
