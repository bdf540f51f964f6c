/**
 * How the files of a run are laid out. A source of tasks says which layout is its own: that of the public harness,
 * whose values are Python's, or that of a file of questions, whose records are written as JSON.parse returns them.
 */
import { compactJson, dumpJson, str } from '../python/show.js';
import { Float, isDict, isList, type PyValue } from '../python/value.js';

export interface ResultsLayout {
  readonly kind: 'harness' | 'file';
  /** What messages call a document. */
  readonly noun: 'document' | 'question';
  /** A value on one line. */
  readonly line: (value: PyValue) => string;
  /** A document as its hash takes it. */
  readonly hashed: (document: PyValue) => string;
  /** A log-likelihood in a response: every leaf of one is text. */
  readonly logLikelihood: (ll: number) => string;
}

export const HARNESS_LAYOUT: ResultsLayout = {
  kind: 'harness',
  noun: 'document',
  line: compactJson,
  hashed: (document) => dumpJson(document),
  logLikelihood: (ll) => str(new Float(ll)),
};

export const FILE_LAYOUT: ResultsLayout = {
  kind: 'file',
  noun: 'question',
  line: (value) => JSON.stringify(plainOf(value)),
  hashed: (document) => JSON.stringify(plainOf(document), null, 2),
  logLikelihood: (ll) => {
    if (!Number.isFinite(ll)) throw new Error(`a question has the log-likelihood ${ll}`);
    return String(ll);
  },
};

/** A value of JSON as JSON.parse returned it. */
function plainOf(value: PyValue): unknown {
  if (value instanceof Float) return value.value;
  if (isList(value)) return value.map(plainOf);
  return isDict(value) ? Object.fromEntries([...value].map(([key, item]) => [key, plainOf(item)])) : value;
}
