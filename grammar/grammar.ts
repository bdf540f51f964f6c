/** Grammars over bytes: what regular expressions and JSON Schemas become, and what is matched token by token. */

/** A regular language over bytes. */
export type Regular =
  /** One byte of a set: bit b % 32 of word b >> 5 stands for byte b. 8 words. */
  | { readonly kind: 'bytes'; readonly set: Uint32Array }
  | { readonly kind: 'literal'; readonly bytes: Uint8Array }
  | { readonly kind: 'sequence'; readonly of: readonly Regular[] }
  | { readonly kind: 'choice'; readonly of: readonly Regular[] }
  /** `max` may be Infinity. */
  | { readonly kind: 'repeat'; readonly of: Regular; readonly min: number; readonly max: number }
  /** What all of them accept. */
  | { readonly kind: 'and'; readonly of: readonly Regular[] }
  /** What it does not accept. */
  | { readonly kind: 'not'; readonly of: Regular };

export type Expression =
  /** A lexeme: matched by an automaton, whatever stands around it. */
  | { readonly kind: 'regular'; readonly regular: Regular }
  /** A special token, which has no bytes. */
  | { readonly kind: 'token'; readonly id: number }
  | { readonly kind: 'sequence'; readonly of: readonly Expression[] }
  | { readonly kind: 'choice'; readonly of: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly of: Expression; readonly min: number; readonly max: number }
  /** A rule by its place; rules may name themselves and each other. */
  | { readonly kind: 'rule'; readonly rule: number };

export interface Grammar {
  readonly rules: readonly Expression[];
  readonly start: Expression;
}

/** Nothing that was asked for can be written, or what was asked is not supported or beyond bounds. */
export class GrammarError extends Error {
  /** Where in the source, as a JSON pointer or a place in a pattern. */
  readonly where: string | undefined;

  constructor(message: string, where?: string) {
    super(message);
    this.where = where;
  }
}
