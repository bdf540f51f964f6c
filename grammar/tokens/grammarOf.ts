/** Grammars of what requests ask for. */
import { type Expression, type Grammar, GrammarError, type Regular } from '../grammar.js';
import { LIMITS } from '../limits.js';
import { EVERY_BYTE } from '../regular/byteSet.js';
import { jsonGrammar, schemaGrammar } from '../schema/schemaGrammar.js';
import type { GrammarSource } from '../source.js';
import { regexLanguage } from './regex.js';
import type { Vocabulary } from './vocabulary.js';

const ANY_BYTE: Regular = { kind: 'bytes', set: EVERY_BYTE };
const ANY_BYTES: Regular = { kind: 'repeat', of: ANY_BYTE, min: 0, max: Infinity };

/** Throws GrammarError where that is not supported or beyond bounds. */
export const grammarOf = (source: GrammarSource, vocabulary: Vocabulary): Grammar => {
  const rules: Expression[] = [];
  const of = (each: GrammarSource, depth: number): Expression => {
    if (depth > LIMITS.depth) throw new GrammarError('what is asked of the text is nested too deep');
    switch (each.kind) {
      case 'json':
        return append(jsonGrammar(), rules);
      case 'schema':
        return append(schemaGrammar(each.schema), rules);
      case 'regex':
        return { kind: 'regular', regular: regexLanguage(each.pattern) };
      case 'text':
        return textOf(each.text, vocabulary);
      case 'until':
        return untilOf(each.text, vocabulary);
      case 'choice':
      case 'sequence':
        return { kind: each.kind, of: each.of.map((part) => of(part, depth + 1)) };
      case 'repeat':
        return { kind: 'repeat', of: of(each.of, depth + 1), min: each.min, max: each.max ?? Infinity };
      default:
        return each satisfies never;
    }
  };
  const start = of(source, 0);
  return { rules, start };
};

/** Puts the rules of a grammar behind these; its start with the numbers that its rules then have. */
const append = (grammar: Grammar, rules: Expression[]): Expression => {
  const offset = rules.length;
  const moved = (of: Expression): Expression => {
    if (of.kind === 'rule') return { kind: 'rule', rule: of.rule + offset };
    if (of.kind === 'sequence' || of.kind === 'choice') return { kind: of.kind, of: of.of.map(moved) };
    return of.kind === 'repeat' ? { ...of, of: moved(of.of) } : of;
  };
  for (const rule of grammar.rules) rules.push(offset === 0 ? rule : moved(rule));
  return offset === 0 ? grammar.start : moved(grammar.start);
};

const textOf = (text: string, { special }: Vocabulary): Expression => {
  const id = special.get(text);
  return id === undefined ? { kind: 'regular', regular: literalOf(text) } : { kind: 'token', id };
};

const untilOf = (text: string, { special }: Vocabulary): Expression => {
  if (text === '') throw new GrammarError('a text cannot go on up to an empty one');
  const id = special.get(text);
  if (id !== undefined)
    return {
      kind: 'sequence',
      of: [
        { kind: 'regular', regular: ANY_BYTES },
        { kind: 'token', id },
      ],
    };
  const marked: Regular = { kind: 'sequence', of: [ANY_BYTES, literalOf(text)] };
  // A text that ends with the marker, and has none that ends before.
  const tooLong: Regular = { kind: 'sequence', of: [marked, ANY_BYTE, ANY_BYTES] };
  return { kind: 'regular', regular: { kind: 'and', of: [marked, { kind: 'not', of: tooLong }] } };
};

const literalOf = (text: string): Regular => ({ kind: 'literal', bytes: Buffer.from(text) });
