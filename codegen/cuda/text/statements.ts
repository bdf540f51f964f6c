/** C statements as lines: composing and indenting blocks, and defining the constants that they use. */

/** Lines one level deeper. Directives (`#pragma`) are not indented. */
const nested = (lines: readonly string[]): string[] => lines.map((line) => (line.startsWith('#') ? line : `  ${line}`));

/** Lines as text, `depth` levels deep. Directives are not indented. */
export const indent = (lines: readonly string[], depth: number): string =>
  lines.map((line) => `${line.startsWith('#') ? '' : '  '.repeat(depth)}${line}\n`).join('');

/** A block of statements. `head` is the text before its opening brace, if any. */
export const block = (head: string, lines: readonly string[]): string[] => [
  head === '' ? '{' : `${head} {`,
  ...nested(lines),
  '}',
];

/** A loop that the compiler unrolls. */
export const unrolled = (head: string, lines: readonly string[]): string[] => ['#pragma unroll', ...block(head, lines)];

/** Statements that run if `condition` holds; unconditional if it is undefined. */
export const guarded = (condition: string | undefined, lines: readonly string[]): string[] =>
  condition === undefined || lines.length === 0 ? [...lines] : block(`if (${condition})`, lines);

/**
 * Integer constants of a block. Only those that are referred to are defined, because compilers warn about unused ones.
 * Statements are printed first, definitions last.
 */
export class Constants {
  private readonly list: { readonly name: string; readonly value: () => string }[] = [];
  private readonly referred = new Set<string>();

  /**
   * Adds a constant, whose value may refer to earlier ones. Calling the result gives its name and counts as a
   * reference.
   */
  add(name: string, value: () => string): () => string {
    this.list.push({ name, value });
    return () => {
      this.referred.add(name);
      return name;
    };
  }

  /** Definitions of the constants that have been referred to, in the order in which they were added. */
  definitions(): string[] {
    const lines: string[] = [];
    for (const { name, value } of this.list.toReversed())
      if (this.referred.has(name)) lines.unshift(`const int ${name} = ${value()};`);
    return lines;
  }
}

/** Templates of generated CUDA. */
import { literalsOf } from '../../scalarPrograms.js';
import { Templates } from '../../templates.js';
import { cudaHeadersText } from './headers.js';

const templates = new Templates(new URL('../templates/', import.meta.url), '.cu.hbs', cudaHeadersText);

/** Prints templates/<name>.cu.hbs. An unknown name in the template is an error. Nothing is escaped. */
export function render(name: string, values: object): string {
  return templates.render(name, values);
}

/** Hex digest of all templates and headers. Tuning records made with others are not used. */
export function cudaTemplatesHash(): string {
  return templates.hash();
}

// Numbers as CUDA text.

export const { float: floatLiteral, double: doubleLiteral } = literalsOf({ nan: 'nan()', infinity: 'infinity()' });

/** The argument of lib's `bounded` for each unit of x / cap, where a cap makes cap·tanh(x / cap) of x. */
export const BOUNDED_UNIT = 2 * Math.LOG2E;
