/** The calling convention as data: what a function takes and gives, by name. */
import type { ExtentDecl, Extents } from './extents.js';
import type { Role } from './roles.js';
import type { DType, Dim } from './types.js';

/** An array that a call hands over. */
export interface InputDecl {
  readonly name: string;
  /** The buffer of the kernels that it is copied to. */
  readonly buffer: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
  readonly role: Role;
}

/** An array that a call gives back. */
export interface OutputDecl {
  readonly name: string;
  readonly buffer: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** Memory that outlives a call: rows of a fixed number, written by some calls and read by later ones. Zero at first. */
export interface StateDecl {
  readonly name: string;
  readonly dtype: DType;
  readonly rows: number;
  readonly columns: number;
}

export interface FunctionInterface {
  readonly name: string;
  /** In the order in which generated functions take them. */
  readonly extents: readonly ExtentDecl[];
  readonly inputs: readonly InputDecl[];
  readonly outputs: readonly OutputDecl[];
  /** Names of states that it reads or writes. */
  readonly takes: readonly string[];
  /** Those of them that it writes. */
  readonly gives: readonly string[];
}

/** The name of the function that gives log-probabilities of tokens. */
export const SCORE = 'score';

/** The size of a call in which every extent is `count`. */
export const everyExtent = ({ extents }: Pick<FunctionInterface, 'extents'>, count: number): Extents =>
  Object.fromEntries(extents.map(({ name }) => [name, count]));

export const extentNames = ({ extents }: Pick<FunctionInterface, 'extents'>): readonly string[] =>
  extents.map(({ name }) => name);
