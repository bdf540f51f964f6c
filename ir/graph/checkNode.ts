/** Checks of one node that need only its op's definition. The verifier and the parser share them. */
import { EXTENT_NAME } from '../extents.js';
import {
  nameOperands,
  TypeMismatch,
  type Attribute,
  type AttributeKind,
  type AttributeKinds,
  type Attributes,
  type OpDef,
} from '../ops/opDef.js';
import type { TensorType } from '../types.js';

/** Names of values, graphs, ops and attributes. */
export const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
/** Names of checkpoint tensors. */
export const WEIGHT_NAME = /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/;
/** Model paths: `layers.3.attention.qkv`, or empty. */
export const PATH = /^(?:[A-Za-z0-9_-]{1,64}(?:\.[A-Za-z0-9_-]{1,64}){0,15})?$/;

export const MAX_RANK = 8;
/** Largest fixed extent. The product of two such extents, at four bytes an element, is still exact in a double. */
export const MAX_DIM = 2 ** 26;

const KIND_TEXT: Readonly<Record<Extract<AttributeKind, string>, string>> = {
  number: 'a number',
  string: 'a string',
  boolean: 'true or false',
  dims: 'a list of dimensions (whole numbers and names of extents)',
  numbers: 'a list of numbers',
};

const kindText = (kind: AttributeKind): string =>
  typeof kind === 'string' ? KIND_TEXT[kind] : `one of ${kind.map((word) => JSON.stringify(word)).join(', ')}`;

const isNumber = (value: unknown): boolean => typeof value === 'number' && !Number.isNaN(value);
const isDim = (value: unknown): boolean =>
  (typeof value === 'string' && EXTENT_NAME.test(value)) ||
  (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_DIM);

function isOfKind(value: Attribute | undefined, kind: AttributeKind): boolean {
  if (typeof kind !== 'string') return kind.some((word) => word === value);
  switch (kind) {
    case 'number':
      return isNumber(value);
    case 'string':
    case 'boolean':
      return typeof value === kind;
    case 'dims':
      return Array.isArray(value) && value.every(isDim);
    case 'numbers':
      return Array.isArray(value) && value.every(isNumber);
    default:
      return kind satisfies never;
  }
}

/** A complaint about attributes: `found …, expected …`. `name` is the attribute at fault, if there is one. */
export interface AttributeProblem {
  readonly name: string | undefined;
  readonly found: string;
  readonly expected: string;
}

/** The first attribute that `def` (the op called `op`) does not know, that is missing, or that has the wrong kind. */
export function attributeProblem(op: string, def: OpDef, attributes: Attributes): AttributeProblem | undefined {
  const wanted = Object.entries(def.attributes);
  const known: AttributeKinds = { ...def.attributes, ...def.optional };
  for (const [name, value] of Object.entries(attributes)) {
    const kind = Object.hasOwn(known, name) ? known[name] : undefined;
    if (kind === undefined)
      return {
        name,
        found: `attribute '${name}'`,
        expected:
          Object.keys(known).length === 0
            ? `none: '${op}' takes no attributes`
            : `those of '${op}': ${Object.keys(known).join(', ')}`,
      };
    if (!isOfKind(value, kind))
      return { name, found: `attribute '${name}' = ${JSON.stringify(value)}`, expected: kindText(kind) };
  }
  const missing = wanted.find(([name]) => !Object.hasOwn(attributes, name));
  return (
    missing && {
      name: undefined,
      found: `'${op}' without attribute '${missing[0]}'`,
      expected: `{${missing[0]} = …}, ${kindText(missing[1])}`,
    }
  );
}

/** The reason why `type` cannot be the type of a value; undefined if it can. */
export function typeProblem(type: TensorType): string | undefined {
  if (type.shape.length > MAX_RANK) return `rank ${type.shape.length} is more than ${MAX_RANK}`;
  const wrong = type.shape.find((dim) => !isDim(dim));
  return wrong === undefined
    ? undefined
    : `${String(wrong)} is not a dimension (a whole number up to ${MAX_DIM}, or the name of an extent)`;
}

/** The result type that the op infers, or the reason why there is none, in words. Attributes are already checked. */
export function inferred(def: OpDef, inputs: readonly TensorType[], attributes: Attributes): TensorType | string {
  try {
    const type = def.infer(nameOperands(def, inputs, attributes), attributes);
    return typeProblem(type) ?? type;
  } catch (error) {
    if (error instanceof TypeMismatch) return error.message;
    throw error;
  }
}
