/** A command line as shells complete it. */

/** What may follow a flag; `none`: it takes no value; `list`: some of the choices, with commas between them. */
export type Value =
  | { readonly kind: 'none' | 'any' | 'file' | 'folder' }
  | { readonly kind: 'choice' | 'list'; readonly choices: readonly string[] };

export interface FlagModel {
  readonly long: string;
  readonly short: string | undefined;
  readonly description: string;
  readonly value: Value;
}

export interface CommandModel {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly FlagModel[];
  /** What stands beside flags: words of a few, or files and folders. */
  readonly argument: Value;
}
