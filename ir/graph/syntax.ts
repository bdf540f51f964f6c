/** Syntax tree of the text form: names with their places, nothing resolved. Also the error that names a place. */
import { UserError } from '../../errors.js';

/** Line and column, both from 1. */
export interface Spot {
  readonly line: number;
  readonly column: number;
}

/** Thrown for wrong text of a graph: `file:line:column: found …, expected …`. */
export class GraphSyntaxError extends UserError {
  readonly spot: Spot;
  readonly found: string;
  readonly expected: string;

  constructor(file: string, spot: Spot, found: string, expected: string) {
    super(`${file}:${spot.line}:${spot.column}: found ${found}, expected ${expected}`);
    this.name = 'GraphSyntaxError';
    this.spot = spot;
    this.found = found;
    this.expected = expected;
  }
}

/** A token's text, with its sigil or quotes. */
export interface Leaf {
  readonly text: string;
  readonly spot: Spot;
}

export interface TypeSyntax {
  readonly dtype: Leaf;
  readonly dims: readonly Leaf[];
}

export interface DeclarationSyntax {
  readonly name: Leaf;
  readonly type: TypeSyntax;
  /** For a parameter. */
  readonly role?: RoleSyntax;
}

/** `row(T)`, `position`. */
export interface RoleSyntax {
  readonly kind: Leaf;
  readonly argument: Leaf | undefined;
}

/** `%logProb: f32[R]`, or the type alone. */
export interface ResultSyntax {
  readonly name: Leaf | undefined;
  readonly type: TypeSyntax;
}

/** `T tokens`, `F filtered within R`. */
export interface ExtentSyntax {
  readonly name: Leaf;
  readonly counts: Leaf | undefined;
  readonly within: Leaf | undefined;
}

export interface AttributeSyntax {
  readonly name: Leaf;
  /** One leaf, or a list of leaves in brackets. */
  readonly value: Leaf | readonly Leaf[];
}

export interface NodeSyntax {
  readonly result: Leaf;
  readonly op: Leaf;
  readonly operands: readonly Leaf[];
  readonly attributes: readonly AttributeSyntax[];
  readonly type: TypeSyntax;
  /** With its quotes. */
  readonly path: Leaf | undefined;
}

/** `%kv: state @kv`. */
export interface TakenSyntax {
  readonly name: Leaf;
  readonly state: Leaf;
}

export interface ModuleSyntax {
  /** Absent: the text is one function. */
  readonly name: Leaf | undefined;
  readonly states: readonly DeclarationSyntax[];
  readonly functions: readonly GraphSyntax[];
}

export interface GraphSyntax {
  readonly name: Leaf;
  /** If absent, the extents of the parameters in order of appearance. */
  readonly extents: readonly ExtentSyntax[] | undefined;
  readonly params: readonly DeclarationSyntax[];
  readonly takes: readonly TakenSyntax[];
  readonly resultTypes: readonly ResultSyntax[];
  readonly gives: readonly Leaf[];
  readonly weights: readonly DeclarationSyntax[];
  readonly nodes: readonly NodeSyntax[];
  readonly returned: readonly Leaf[];
  /** The operands of `return`. */
  readonly returnSpot: Spot;
}
