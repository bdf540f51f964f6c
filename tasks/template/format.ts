/** Python's str.format() for fields that are numbered or named, without formats and conversions. */
import type { Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { join } from './pieces.js';
import type { Work } from './work.js';

const PIECE = /\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+/g;

export function format(text: string, args: readonly Value[], named: ReadonlyMap<string, Value>, work: Work): string {
  let next = 0,
    isNumbered: boolean | undefined;
  const field = (name: string): string => {
    if (!/^(?:\d+|[A-Za-z_]\w*)?$/.test(name))
      throw new Failure(`format() with {${name}} is not supported; there are {}, {0} and {name}`);
    const isDigits = /^\d+$/.test(name);
    if (name === '' || isDigits) {
      if (isNumbered !== undefined && isNumbered !== isDigits) throw new Failure('format() mixes {} and {0}');
      isNumbered = isDigits;
    }
    const value = isDigits ? args[Number(name)] : name === '' ? args[next++] : named.get(name);
    if (value === undefined) throw new Failure(`format() has no value for {${name}}`);
    return work.str(value);
  };
  const pieces: string[] = [];
  for (const [piece, name] of text.matchAll(PIECE)) {
    if (piece === '{' || piece === '}') throw new Failure(`format() finds a single "${piece}"`);
    const written = name === undefined ? (piece === '{{' || piece === '}}' ? piece[0]! : piece) : field(name);
    work.spend(0.25);
    pieces.push(written);
  }
  return join(pieces, '', work);
}
