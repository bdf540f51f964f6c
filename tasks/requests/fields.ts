/** doc_to_text, doc_to_target, doc_to_choice and the like: what a document's fields make of a task's keys. */
import { UserError } from '../../errors.js';
import { clipped } from '../../system/json.js';
import { literalEval } from '../../python/literal.js';
import { str } from '../../python/show.js';
import { isDict, isInt, isList, typeName, type Dict, type Value } from '../../python/value.js';
import { Template } from './template.js';

/** A key's value: literal, template or column, or a function in the place of a Python hook. */
export type Source = Value | ((document: Dict) => Value);

/** How one key is read from documents that have these columns. */
export class Field {
  readonly #source: Source;
  readonly #where: string;
  readonly #template: Template | undefined;
  readonly #column: string | undefined;

  /** `where`: file, line and key. Throws UserError for a template outside the subset. */
  constructor(source: Source, columns: ReadonlySet<string>, where: string) {
    this.#source = source;
    this.#where = where;
    this.#column = typeof source === 'string' && columns.has(source) ? source : undefined;
    this.#template = typeof source === 'string' && this.#column === undefined ? new Template(source, where) : undefined;
  }

  #fail(document: string, problem: string): UserError {
    return new UserError(`${this.#where}, ${document}: ${clipped(problem)}`);
  }

  #literal(text: string, document: string): Value {
    try {
      return literalEval(text);
    } catch (error) {
      if (error instanceof SyntaxError) throw this.#fail(document, `no Python literal: ${error.message}`);
      throw error;
    }
  }

  /** The column's or the function's value; undefined for a template or a literal. */
  #given(fields: Dict, document: string): Value | undefined {
    if (typeof this.#source === 'function') return this.#source(fields);
    if (this.#column === undefined) return undefined;
    const value = fields.get(this.#column);
    if (value === undefined) throw this.#fail(document, `there is no column ${JSON.stringify(this.#column)}`);
    return value;
  }

  /** As doc_to_text. Digits alone are a number where the task has choices. */
  text(fields: Dict, document: string, hasChoices: boolean): Value {
    const given = this.#given(fields, document);
    if (given !== undefined) return given;
    if (this.#template === undefined) {
      if (isInt(this.#source) || typeof this.#source === 'boolean') return this.#source;
      throw this.#fail(document, 'expected text, a column or a number');
    }
    const text = this.#template.render(fields, document);
    return hasChoices && /^\p{Nd}+$/u.test(text) ? this.#literal(text, document) : text;
  }

  /** As doc_to_target: a text in brackets is a list where it is a literal. */
  target(fields: Dict, document: string, hasChoices: boolean): Value {
    if (typeof this.#source !== 'function' && isList(this.#source)) return this.#source;
    const value = this.text(fields, document, hasChoices);
    if (this.#template === undefined || typeof value !== 'string' || !/^\[[^]*\]$/.test(value)) return value;
    try {
      return literalEval(value);
    } catch {
      return value;
    }
  }

  choices(fields: Dict, document: string): readonly Value[] {
    const source = this.#source;
    const value =
      this.#given(fields, document) ??
      (this.#template !== undefined
        ? this.#literal(this.#template.render(fields, document), document)
        : typeof source === 'function'
          ? null
          : source);
    if (isDict(value)) return [...value.values()];
    if (!isList(value) || value.length === 0)
      throw this.#fail(
        document,
        `expected a list of choices, found ${isList(value) ? 'an empty one' : typeName(value)}`,
      );
    return value;
  }

  /** As description and gen_prefix: always text. */
  plain(fields: Dict, document: string): string {
    return str(this.#given(fields, document) ?? this.#template?.render(fields, document) ?? '');
  }
}
