/**
 * Shapes of JSON values: what a schema says, type by type. A value fits a schema when it fits one of its shapes. Shapes
 * name the schemas of items and properties by nodes (nodes.ts), which are taken apart when they are needed, so that
 * schemas may refer to themselves.
 */
import type { Regular } from '../grammar.js';

/** A conjunction of schemas, by its place in a table. */
export type NodeId = number;

export interface NullShape {
  readonly type: 'null';
}

export interface BooleanShape {
  readonly type: 'boolean';
  readonly values: readonly boolean[];
}

export interface NumberShape {
  readonly type: 'number';
  /** `fraction`: what is no integer. */
  readonly kind: 'any' | 'integer' | 'fraction';
  /** Bounds that belong to it. */
  readonly min: number;
  readonly max: number;
  /** Steps as fractions in lowest terms. */
  readonly multipleOf: readonly Fraction[];
  /** Of integers only: it is a multiple of none of these. */
  readonly notMultipleOf: readonly number[];
}

export interface Fraction {
  readonly numerator: number;
  readonly denominator: number;
}

export interface StringShape {
  readonly type: 'string';
  /** What may stand between the quotes; absent: any string. */
  readonly text?: Regular | undefined;
  /** The values, where they are few; `text` is then absent. */
  readonly values?: ReadonlySet<string> | undefined;
}

export interface ArrayShape {
  readonly type: 'array';
  readonly prefix: readonly NodeId[];
  /** Items behind the prefix. */
  readonly items: NodeId;
  readonly min: number;
  readonly max: number;
  readonly isUnique: boolean;
  /** At least `min` and at most `max` items fit the node. */
  readonly contains: readonly { readonly node: NodeId; readonly min: number; readonly max: number }[];
}

/** Properties by their names. */
export interface OtherProperties {
  /** Absent: all names. */
  readonly names?: Regular | undefined;
  readonly node: NodeId;
}

export interface ObjectShape {
  readonly type: 'object';
  /** In the order in which they are written. A property of a node that nothing fits may not be there. */
  readonly properties: ReadonlyMap<string, NodeId>;
  /** Names of one are no names of another. What none of them names may not be there. */
  readonly others: readonly OtherProperties[];
  readonly required: ReadonlySet<string>;
  /** For each, at least one property that is there has a name of these, and fits the node. */
  readonly some: readonly OtherProperties[];
  readonly min: number;
  readonly max: number;
}

export type Shape = NullShape | BooleanShape | NumberShape | StringShape | ArrayShape | ObjectShape;
export type ShapeType = Shape['type'];

export const SHAPE_TYPES: readonly ShapeType[] = ['object', 'array', 'string', 'number', 'boolean', 'null'];

export const ANY_NUMBER: NumberShape = {
  type: 'number',
  kind: 'any',
  min: -Infinity,
  max: Infinity,
  multipleOf: [],
  notMultipleOf: [],
};

/** The node of the conjunction of no schema, which every value fits, and the one that none fits. */
export const TRUE: NodeId = 0;
export const FALSE: NodeId = 1;

export const ANY_ARRAY: ArrayShape = {
  type: 'array',
  prefix: [],
  items: TRUE,
  min: 0,
  max: Infinity,
  isUnique: false,
  contains: [],
};

export const ANY_OBJECT: ObjectShape = {
  type: 'object',
  properties: new Map(),
  others: [{ node: TRUE }],
  required: new Set(),
  some: [],
  min: 0,
  max: Infinity,
};

/** Every value of a type. */
export const ANY_OF_TYPE: { readonly [T in ShapeType]: Shape } = {
  object: ANY_OBJECT,
  array: ANY_ARRAY,
  string: { type: 'string' },
  number: ANY_NUMBER,
  boolean: { type: 'boolean', values: [true, false] },
  null: { type: 'null' },
};

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** A positive double as the fraction that its shortest decimal is; undefined where that is beyond what doubles hold. */
export function fractionOf(value: number): Fraction | undefined {
  const [mantissa = '', exponent = '0'] = value.toExponential().split('e');
  const digits = mantissa.replace('.', '');
  const places = digits.length - 1 - Number(exponent);
  const numerator = Number(digits) * 10 ** Math.max(0, -places);
  const denominator = 10 ** Math.max(0, places);
  if (!Number.isSafeInteger(numerator) || !Number.isSafeInteger(denominator)) return undefined;
  const common = gcd(numerator, denominator);
  return { numerator: numerator / common, denominator: denominator / common };
}

/** The least common multiple of two fractions in lowest terms. */
export function commonMultiple(a: Fraction, b: Fraction): Fraction {
  const numerator = (a.numerator / gcd(a.numerator, b.numerator)) * b.numerator;
  return { numerator, denominator: gcd(a.denominator, b.denominator) };
}

/** Whether a number is a multiple of the fraction, as the decimals that they are. */
export function isMultiple(value: number, step: Fraction): boolean {
  if (value === 0) return true;
  const fraction = fractionOf(Math.abs(value));
  if (fraction === undefined) return false;
  return fraction.numerator % step.numerator === 0 && step.denominator % fraction.denominator === 0;
}
