/** How C writes the operators of scalar programs: of a row's numbers, and of vectors of 16 columns. */
import type { BinaryScalar, UnaryScalar } from '../../ir/scalar.js';
import { C_ARITHMETIC, C_COMPARE } from '../scalarText.js';

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
