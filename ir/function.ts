/** The calling convention as data: the named arrays that a function takes and returns. */
import { productOf, type ExtentDecl, type Extents } from './extents.js';
import type { Role } from './roles.js';
import type { DType, Dim } from './types.js';

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

/** Memory that outlives a call: a fixed number of rows, written by some calls and read by later ones. Zero at first. */
export interface StateDecl {
  readonly name: string;
  readonly dtype: DType;
  readonly rows: number;
  readonly columns: number;
  /** Its columns lie one behind another, rows of a column beside each other. Otherwise rows do, padded. */
  readonly isByColumn?: true;
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

/** The size of a call in which every extent is `count`. */
export const everyExtent = ({ extents }: Pick<FunctionInterface, 'extents'>, count: number): Extents =>
  Object.fromEntries(sizeNames({ extents }).map((name) => [name, count]));

/** The extents that a call states. Products follow from them. */
export const sizeNames = ({ extents }: Pick<FunctionInterface, 'extents'>): readonly string[] =>
  extentNames({ extents }).filter((name) => productOf(name) === undefined);

export const extentNames = ({ extents }: Pick<FunctionInterface, 'extents'>): readonly string[] =>
  extents.map(({ name }) => name);
