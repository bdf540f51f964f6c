/** What a text is asked to be: as it comes in a request, and goes from thread to thread. */
export type GrammarSource =
  /** Any JSON object. */
  | { readonly kind: 'json' }
  /** JSON that a JSON Schema accepts. A value of JSON. */
  | { readonly kind: 'schema'; readonly schema: unknown }
  /** A regular expression that the whole text matches. */
  | { readonly kind: 'regex'; readonly pattern: string }
  /** This text; where it is the text of a special token, that token. */
  | { readonly kind: 'text'; readonly text: string }
  /** Any text up to the first occurrence of this one, which is the end of it. */
  | { readonly kind: 'until'; readonly text: string }
  | { readonly kind: 'choice'; readonly of: readonly GrammarSource[] }
  | { readonly kind: 'sequence'; readonly of: readonly GrammarSource[] }
  | { readonly kind: 'repeat'; readonly of: GrammarSource; readonly min: number; readonly max?: number };
