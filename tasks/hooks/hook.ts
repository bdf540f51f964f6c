/** Python functions of task files, written anew: what kinds there are, and how they read documents. */
import type { PythonRandom } from '../../python/random.js';
import { isDict, isInt, isList, typeName, type Dict, type PyValue } from '../../python/value.js';

/** A metric's value for one document, or several that only the aggregation over documents joins. */
export type Scored = number | readonly number[];

/** What the functions are that take the places of Python's, by kind. */
export interface Ports {
  /** process_docs: the document with other fields, or undefined for one that is left out. */
  readonly document: (document: Dict) => Dict | undefined;
  /** process_docs that draws from Python's own generator. */
  readonly shuffled: (document: Dict, random: PythonRandom) => Dict;
  /** doc_to_text, doc_to_target, doc_to_choice. */
  readonly field: (document: Dict) => PyValue;
  /** process_results: metrics of a document by the log-likelihoods of its requests, in their order. */
  readonly results: (document: Dict, logLikelihoods: readonly number[]) => ReadonlyMap<string, Scored>;
  /** process_results of a task that generates: metrics of a document by its texts. */
  readonly texts: (document: Dict, texts: readonly string[]) => ReadonlyMap<string, Scored>;
  /** The aggregation of a metric: the name of one of tilewright's own. */
  readonly aggregation: string;
  /** The class of a filter: the name of one of tilewright's own. */
  readonly filter: string;
  /** Examples that are written in Python. */
  readonly samples: () => readonly Dict[];
}

/** One function of these, by its kind. */
export type Ported = Partial<Ports> & {
  /** Where its values may differ from the public harness's: a line for people. */
  readonly note?: string;
};

/** A document that the function cannot use. The caller says which it is and where the function is named. */
export class HookProblem extends Error {}

/** The field of a document. Throws HookProblem if it has none. */
export function fieldOf(document: Dict, name: string): PyValue {
  const value = document.get(name);
  if (value !== undefined) return value;
  throw new HookProblem(`there is no column ${JSON.stringify(name)}; there are ${[...document.keys()].join(', ')}`);
}

export function textOf(document: Dict, name: string): string {
  const value = fieldOf(document, name);
  if (typeof value === 'string') return value;
  throw new HookProblem(`${name}: expected text, found ${typeName(value)}`);
}

export function intOf(document: Dict, name: string): number {
  const value = fieldOf(document, name);
  if (isInt(value)) return Number(value);
  throw new HookProblem(`${name}: expected a whole number, found ${typeName(value)}`);
}

export function textsOf(value: PyValue, name: string): readonly string[] {
  if (isList(value) && value.every((item) => typeof item === 'string')) return value;
  throw new HookProblem(`${name}: expected a list of texts, found ${typeName(value)}`);
}

export function dictOf(value: PyValue, name: string): Dict {
  if (isDict(value)) return value;
  throw new HookProblem(`${name}: expected keys and values, found ${typeName(value)}`);
}

/** One of the keys of a table. */
export function chosen<T>(table: Readonly<Record<string, T>>, key: string, name: string): T {
  const value = Object.hasOwn(table, key) ? table[key] : undefined;
  if (value !== undefined) return value;
  throw new HookProblem(`${name}: expected one of ${Object.keys(table).join(', ')}, found ${JSON.stringify(key)}`);
}
