/** Recognisers that follow the definitions, without automata: what grammars are compared with. */
import type { Expression, Grammar, Regular } from '../../grammar/grammar.js';

/** Ends of all texts of a regular expression that begin at a place. */
const endsOfRegular = (regular: Regular, bytes: Uint8Array, from: number): Set<number> => {
  switch (regular.kind) {
    case 'bytes': {
      const byte = bytes[from];
      return new Set(byte !== undefined && (regular.set[byte >> 5]! >>> (byte & 31)) & 1 ? [from + 1] : []);
    }
    case 'literal':
      return new Set(regular.bytes.every((byte, at) => bytes[from + at] === byte) ? [from + regular.bytes.length] : []);
    case 'sequence':
      return regular.of.reduce(
        (ends, part) => throughAll(ends, (at) => endsOfRegular(part, bytes, at)),
        new Set([from]),
      );
    case 'choice':
      return new Set(regular.of.flatMap((part) => [...endsOfRegular(part, bytes, from)]));
    case 'repeat':
      return repeated(from, regular.min, regular.max, (at) => endsOfRegular(regular.of, bytes, at));
    case 'and': {
      const sets = regular.of.map((part) => endsOfRegular(part, bytes, from));
      return new Set(placesFrom(from, bytes).filter((at) => sets.every((set) => set.has(at))));
    }
    case 'not': {
      const ends = endsOfRegular(regular.of, bytes, from);
      return new Set(placesFrom(from, bytes).filter((at) => !ends.has(at)));
    }
    default:
      return regular satisfies never;
  }
};

const placesFrom = (from: number, { length }: { readonly length: number }): number[] =>
  Array.from({ length: length - from + 1 }, (_, at) => from + at);

const throughAll = (from: ReadonlySet<number>, of: (at: number) => ReadonlySet<number>): Set<number> =>
  new Set([...from].flatMap((at) => [...of(at)]));

const repeated = (from: number, min: number, max: number, of: (at: number) => ReadonlySet<number>): Set<number> => {
  const all = new Set<number>();
  let ends = new Set([from]);
  // Behind `min` repetitions, those that lead nowhere new say nothing more.
  for (let count = 0; count <= max && ends.size > 0; count++) {
    const isNew = [...ends].some((end) => !all.has(end));
    if (count >= min) for (const end of ends) all.add(end);
    if (count >= min && !isNew) break;
    if (count > min + 64) break;
    ends = throughAll(ends, of);
  }
  return all;
};

export const matchesRegular = (regular: Regular, bytes: Uint8Array): boolean =>
  endsOfRegular(regular, bytes, 0).has(bytes.length);

/** A text: numbers below 256 are bytes, and 256 + t is the special token t. */
export type Letters = readonly number[];

/** Whether a grammar has a text: the least fixed point of the ends of each rule at each place. */
export const matchesGrammar = (grammar: Grammar, letters: Letters): boolean => {
  const known = grammar.rules.map(() => letters.map(() => new Set<number>()).concat([new Set()]));
  const ends = (expression: Expression, from: number): Set<number> => {
    switch (expression.kind) {
      case 'regular': {
        const stop = letters.findIndex((letter, at) => at >= from && letter >= 256);
        const bytes = Uint8Array.from(letters.slice(0, stop < 0 ? letters.length : stop));
        return from > bytes.length ? new Set() : endsOfRegular(expression.regular, bytes, from);
      }
      case 'token':
        return new Set(letters[from] === 256 + expression.id ? [from + 1] : []);
      case 'sequence':
        return expression.of.reduce((all, part) => throughAll(all, (at) => ends(part, at)), new Set([from]));
      case 'choice':
        return new Set(expression.of.flatMap((part) => [...ends(part, from)]));
      case 'repeat':
        return repeated(from, expression.min, expression.max, (at) => ends(expression.of, at));
      case 'rule':
        return known[expression.rule]![from]!;
      default:
        return expression satisfies never;
    }
  };
  for (let hasGrown = true; hasGrown;) {
    hasGrown = false;
    for (const [index, rule] of grammar.rules.entries()) {
      for (const at of placesFrom(0, letters)) {
        const before = known[index]![at]!;
        const after = ends(rule, at);
        if (after.size > before.size) {
          known[index]![at] = after;
          hasGrown = true;
        }
      }
    }
  }
  return ends(grammar.start, 0).has(letters.length);
};
