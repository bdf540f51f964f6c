/** The calling convention as data: the named arrays that a function takes and returns. */
import { type ExtentDecl, extentIn, type Extents, productOf } from './extents.js';
import type { Dim, DType, ExtentName } from './types.js';

/** An array that the caller passes in. */
export interface InputDecl {
  readonly name: string;
  /** The kernels' buffer that it is copied to. */
  readonly buffer: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
  readonly role: Role;
}

/** An array that a call returns. */
export interface OutputDecl {
  readonly name: string;
  readonly buffer: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** Names of states. In every function the buffer of a state has the state's name. */
export const STATE_NAME = /^[a-z][a-z0-9_]{0,63}$/;

/**
 * Rows of states that have one for each token whose keys and values are kept. They are addresses alone: memory lies
 * behind the first ones, as many as are in use. Kernels count units of 16 bytes up to a row in 32 bits, which are
 * enough for rows of 16 KiB.
 */
export const RESERVED_ROWS = 1 << 22;

export const isReserved = ({ rows }: Pick<StateDecl, 'rows'>): boolean => rows === RESERVED_ROWS;

/** Memory that outlives a call: a fixed number of rows, written by some calls and read by later ones. Zero at first. */
export interface StateDecl {
  readonly name: string;
  readonly dtype: DType;
  readonly rows: number;
  readonly columns: number;
  /** Rows lie in blocks (ir/plan's columnStride). Otherwise one behind another, padded. */
  readonly isBlocked?: true;
}

export interface FunctionInterface {
  readonly name: string;
  /** In the order in which generated functions take them. */
  readonly extents: readonly ExtentDecl[];
  readonly inputs: readonly InputDecl[];
  readonly outputs: readonly OutputDecl[];
  /** Names of the states that the function reads or writes. */
  readonly takes: readonly string[];
  /** Names of the states that the function writes. */
  readonly gives: readonly string[];
}

/** The name of the function that computes log-probabilities of tokens. */
export const SCORE = 'score';

/** The name of the function that continues paths of tokens over kept keys and values. */
export const STEP = 'step';

/** The name of the function that copies kept keys and values from rows to rows. */
export const COPY = 'copy';

/**
 * The name of the function that proposes tokens behind paths, from keys and values of its own beside those of `step`.
 */
export const DRAFT = 'draft';

/** Whether what a function gives need not be finite: its reader looks at that. */
export const mayBeRough = ({ name }: Pick<FunctionInterface, 'name'>): boolean => name === DRAFT;

/** Whether rows of its calls may have adapters. */
export const takesAdapters = ({ inputs }: Pick<FunctionInterface, 'inputs'>): boolean =>
  inputs.some(({ role }) => role.kind === 'adapter');

/** The size of a call in which every extent is `count`. */
export const everyExtent = ({ extents }: Pick<FunctionInterface, 'extents'>, count: number): Extents =>
  Object.fromEntries(sizeNames({ extents }).map((name) => [name, count]));

/** The extents that a call states. Products follow from them. */
export const sizeNames = ({ extents }: Pick<FunctionInterface, 'extents'>): readonly string[] =>
  extentNames({ extents }).filter((name) => productOf(name) === undefined);

export const extentNames = ({ extents }: Pick<FunctionInterface, 'extents'>): readonly string[] =>
  extents.map(({ name }) => name);

// Roles say what the numbers of an input are and what bounds them. With them the kernel verifier proves that no index
// is out of range, and a runtime checks every call before native code reads an input.

export type Role =
  /** A token id below the vocabulary. */
  | { readonly kind: 'token'; readonly vocab: number }
  /** Depth of a token in its tree: at most its own row number, and below the longest context, as for `depth`. */
  | { readonly kind: 'position'; readonly below?: number }
  /** Depth of a token on a path that earlier calls began: below the longest context, which `below` may state. */
  | { readonly kind: 'depth'; readonly below?: number }
  /** One past the last row of the subtree that starts at this row. */
  | { readonly kind: 'subtreeEnd' }
  /** A row number below an extent. */
  | { readonly kind: 'row'; readonly of: ExtentName }
  /** A row number below an extent, or −1 for none. */
  | { readonly kind: 'rowOrNone'; readonly of: ExtentName }
  /** A row of a state to write, or −1 for none. A row comes once: the rows of a call are written in no order. */
  | { readonly kind: 'slot'; readonly state: string }
  /** A row of a state. */
  | { readonly kind: 'entry'; readonly state: string }
  /** A row of a state, or −1 for none. */
  | { readonly kind: 'entryOrNone'; readonly state: string }
  /** The slot of a row's adapter, below `slots`, or −1 for none. */
  | { readonly kind: 'adapter'; readonly slots: number }
  /** Numbers that are not indices. */
  | { readonly kind: 'values' };

export const ROLE_KINDS = [
  'token',
  'position',
  'depth',
  'subtreeEnd',
  'row',
  'rowOrNone',
  'slot',
  'entry',
  'entryOrNone',
  'adapter',
  'values',
] as const;

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
  position: ({ below = Infinity }, { maxLength }) =>
    byRow(
      () => 0,
      (row) => Math.min(below, maxLength, row + 1),
    ),
  depth: ({ below = Infinity }, { maxLength }) => from(0, Math.min(below, maxLength)),
  subtreeEnd: (_, __, rows) =>
    byRow(
      (row) => row + 1,
      () => rows + 1,
    ),
  row: ({ of }, { extents }) => from(0, extentIn(of, extents)),
  rowOrNone: ({ of }, { extents }) => from(-1, extentIn(of, extents)),
  slot: ({ state }, { states }) => from(-1, extentIn(state, states)),
  entry: ({ state }, { states }) => from(0, extentIn(state, states)),
  entryOrNone: ({ state }, { states }) => from(-1, extentIn(state, states)),
  adapter: ({ slots }) => from(-1, slots),
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
      return role.below;
    case 'subtreeEnd':
    case 'rowOrNone':
    case 'slot':
    case 'entryOrNone':
    case 'adapter':
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
    case 'adapter':
      return `adapter(${role.slots})`;
    case 'row':
    case 'rowOrNone':
      return `${role.kind}(${role.of})`;
    case 'slot':
    case 'entry':
    case 'entryOrNone':
      return `${role.kind}(@${role.state})`;
    case 'position':
    case 'depth':
      return role.below === undefined ? role.kind : `${role.kind}(${role.below})`;
    case 'subtreeEnd':
    case 'values':
      return role.kind;
    default:
      return role satisfies never;
  }
}

// How a cache keeps keys and values: as attention reads them, or as codes of 8 bits with a scale for each head.

export const CACHE_FORMATS = ['e4m3', 'i8'] as const satisfies readonly DType[];
export type CacheFormat = (typeof CACHE_FORMATS)[number];

/** The name of the state that holds the scales of a state of codes. */
export const stateScales = (state: string): string => `${state}_scale`;
