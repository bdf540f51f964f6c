/** Statements of C as lines: how blocks of them are composed and indented, and which constants they need. */

/** Lines one level deeper. Directives (`#pragma`) stay at the margin. */
const nested = (lines: readonly string[]): string[] => lines.map((line) => (line.startsWith('#') ? line : `  ${line}`));

/** Lines as text, `depth` levels deep. Directives stay at the margin. */
export const indent = (lines: readonly string[], depth: number): string =>
  lines.map((line) => `${line.startsWith('#') ? '' : '  '.repeat(depth)}${line}\n`).join('');

/** A block of statements; `head` is what stands before its opening brace, if anything. */
export const block = (head: string, lines: readonly string[]): string[] => [
  head === '' ? '{' : `${head} {`,
  ...nested(lines),
  '}',
];

/** A loop that the compiler unrolls. */
export const unrolled = (head: string, lines: readonly string[]): string[] => ['#pragma unroll', ...block(head, lines)];

/** Statements that run where `condition` holds; always where it is undefined. */
export const guarded = (condition: string | undefined, lines: readonly string[]): string[] =>
  condition === undefined || lines.length === 0 ? [...lines] : block(`if (${condition})`, lines);

/**
 * Integer constants of a block, of which only those are defined that something refers to: compilers warn of the others.
 * Statements are printed first, definitions last.
 */
export class Constants {
  private readonly list: { readonly name: string; readonly value: () => string }[] = [];
  private readonly referred = new Set<string>();

  /**
   * Adds a constant, whose value may refer to earlier ones. Whoever prints its name calls the result, which counts as a
   * reference.
   */
  add(name: string, value: () => string): () => string {
    this.list.push({ name, value });
    return () => {
      this.referred.add(name);
      return name;
    };
  }

  /** Definitions of the constants that were referred to so far, in the order in which they were added. */
  definitions(): string[] {
    const lines: string[] = [];
    for (const { name, value } of this.list.toReversed())
      if (this.referred.has(name)) lines.unshift(`const int ${name} = ${value()};`);
    return lines;
  }
}
