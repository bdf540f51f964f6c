/**
 * Roles say what the numbers of an input are and what bounds them. With them the kernel verifier proves that no index
 * is out of range, and a runtime checks every call before native code reads an input.
 */
import { extentIn, type Extents } from './extents.js';
import type { Dim, ExtentName } from './types.js';

export type Role =
  /** A token id below the vocabulary. */
  | { readonly kind: 'token'; readonly vocab: number }
  /** Depth of a token in its tree: at most its own row number, and below the longest context. */
  | { readonly kind: 'position' }
  /** Depth of a token on a path that earlier calls began: below the longest context. */
  | { readonly kind: 'depth' }
  /** One past the last row of the subtree that starts at this row. */
  | { readonly kind: 'subtreeEnd' }
  /** A row number below an extent. */
  | { readonly kind: 'row'; readonly of: ExtentName }
  /** A row of a state to write, or −1 for none. A row comes once: the rows of a call are written in no order. */
  | { readonly kind: 'slot'; readonly state: string }
  /** A row of a state. */
  | { readonly kind: 'entry'; readonly state: string }
  /** Numbers that are not indices. */
  | { readonly kind: 'values' };

export const ROLE_KINDS = ['token', 'position', 'depth', 'subtreeEnd', 'row', 'slot', 'entry', 'values'] as const;

/** The sizes that bound the numbers of a call. */
export interface RoleLimits {
  readonly extents: Extents;
  /** Rows of each state. */
  readonly states: Readonly<Record<string, number>>;
  /** Longest context of the model, in tokens. */
  readonly maxLength: number;
}

/** Bounds of an input's numbers, by row: at least `low`, less than `below`. */
export interface RoleRange {
  readonly low: (row: number) => number;
  readonly below: (row: number) => number;
  /** Whether all rows have the same bounds. */
  readonly isUniform: boolean;
}

type Rule<K extends Role['kind']> = (
  role: Extract<Role, { kind: K }>,
  limits: RoleLimits,
  rows: number,
) => RoleRange | undefined;

const from = (low: number, below: number): RoleRange => ({ low: () => low, below: () => below, isUniform: true });

const byRow = (low: RoleRange['low'], below: RoleRange['below']): RoleRange => ({ low, below, isUniform: false });

/** The bounds that each role sets for an input of `rows` rows; undefined if any number is valid. */
const RANGES: { readonly [K in Role['kind']]: Rule<K> } = {
  token: ({ vocab }) => from(0, vocab),
  position: (_, { maxLength }) =>
    byRow(
      () => 0,
      (row) => Math.min(maxLength, row + 1),
    ),
  depth: (_, { maxLength }) => from(0, maxLength),
  subtreeEnd: (_, __, rows) =>
    byRow(
      (row) => row + 1,
      () => rows + 1,
    ),
  row: ({ of }, { extents }) => from(0, extentIn(of, extents)),
  slot: ({ state }, { states }) => from(-1, extentIn(state, states)),
  entry: ({ state }, { states }) => from(0, extentIn(state, states)),
  values: () => undefined,
};

export function roleRange(role: Role, limits: RoleLimits, rows: number): RoleRange | undefined {
  const rule = RANGES[role.kind] as Rule<Role['kind']>;
  return rule(role, limits, rows);
}

/** Whether no row number may come twice. */
export const isDistinct = ({ kind }: Role): boolean => kind === 'slot';

/** Exclusive bound of an index with this role, as an extent of what it may index; undefined if it is not an index. */
export function indexBound(role: Role, stateRows: (state: string) => Dim | undefined): Dim | undefined {
  switch (role.kind) {
    case 'token':
      return role.vocab;
    case 'row':
      return role.of;
    case 'entry':
      return stateRows(role.state);
    case 'position':
    case 'depth':
    case 'subtreeEnd':
    case 'slot':
    case 'values':
      return undefined;
    default:
      return role satisfies never;
  }
}

/** `token(32000)`, `row(T)`, `slot(@kv)`, `position`: a role in the text form of graphs. */
export function printRole(role: Role): string {
  switch (role.kind) {
    case 'token':
      return `token(${role.vocab})`;
    case 'row':
      return `row(${role.of})`;
    case 'slot':
    case 'entry':
      return `${role.kind}(@${role.state})`;
    case 'position':
    case 'depth':
    case 'subtreeEnd':
    case 'values':
      return role.kind;
    default:
      return role satisfies never;
  }
}
