/** IFEval: verdicts of lm-evaluation-harness's own checkers, languages and sentences, and figures of documents. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Dict, PyValue } from '../../../../python/value.js';
import { openLibrary } from '../../../../tasks/builtin/index.js';
import { tasksBelow } from '../../../../tasks/definition/settings.js';
import { HookProblem } from '../../../../tasks/hooks/hook.js';
import { instructionResults, INSTRUCTIONS } from '../../../../tasks/hooks/instructions.js';
import { languageOf } from '../../../../tasks/hooks/language.js';
import { notesOn } from '../../../../tasks/hooks/registry.js';
import { sentenceCount } from '../../../../tasks/hooks/sentences.js';
import { TaskScores } from '../../../../tasks/scores/ofTask.js';
import { toValue } from '../../values.js';

type Row = readonly [name: string, settings: object, text: string, strict: boolean, loose: boolean];
const read = (name: string): unknown => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'));
const ROWS = read('./instructions.json') as readonly Row[];
const LANGUAGES = Object.entries(read('./languages.json') as Readonly<Record<string, readonly string[]>>);

const documentOf = (...asked: readonly (readonly [name: string, settings: object])[]): Dict =>
  new Map<string, PyValue>([
    ['instruction_id_list', asked.map(([name]) => name)],
    ['kwargs', asked.map(([, settings]) => toValue(settings))],
  ]);

describe('an instruction', () => {
  it.each(Object.keys(INSTRUCTIONS))('%s is followed where the harness says so', (name) => {
    for (const [of, settings, text, strict, loose] of ROWS) {
      if (of !== name) continue;
      const results = instructionResults(documentOf([name, settings]), [text]);
      const found = ['strict', 'loose'].map((how) => results.get(`inst_level_${how}_acc`));
      expect(found, JSON.stringify([settings, text])).toEqual([[Number(strict)], [Number(loose)]]);
    }
  });

  it('has a verdict of the harness, but for those of language and sentences', () => {
    const seen = new Set(ROWS.map(([name]) => name));
    expect(Object.keys(INSTRUCTIONS).filter((name) => !seen.has(name))).toEqual([
      'language:response_language',
      'length_constraints:number_sentences',
      'change_case:english_capital',
      'change_case:english_lowercase',
    ]);
  });

  it.each(LANGUAGES)('knows the language %s', (code, texts) => {
    expect(texts.map(languageOf)).toEqual(texts.map(() => code));
    const document = documentOf(['language:response_language', { language: code }]);
    expect(instructionResults(document, [texts[0]!]).get('prompt_level_strict_acc')).toBe(1);
  });

  it('asks for English in capitals or small letters', () => {
    const follows = (name: string, text: string): unknown =>
      instructionResults(documentOf([`change_case:english_${name}`, {}]), [text]).get('prompt_level_strict_acc');
    expect(
      ['THE CAT IS IN THE HOUSE.', 'The cat.', 'DIE KATZE IST NICHT IN DEM HAUS.'].map((text) =>
        follows('capital', text),
      ),
    ).toEqual([1, 0, 0]);
    expect(['the cat is in the house.', 'The cat.'].map((text) => follows('lowercase', text))).toEqual([1, 0]);
  });

  it.each([
    ['One. Two! Three?', 3],
    ['Dr. Smith met Mr. J. R. Jones at 5 p.m. on Jan. 3. They left.', 2],
    ['It costs 3.50 dollars. "Really?" she said. (Yes.) No', 5],
    ['Wait... what? e.g. this, i.e. that', 2],
    ['**Bold.** Next one.\n* an item\n* another', 3],
    ['1. First\n2. Second', 3],
    ['no end', 1],
    [' \n', 0],
    ['He lives in the U.S. The weather is fine.', 2],
  ])('counts the sentences of %j', (text, count) => {
    expect(sentenceCount(text)).toBe(count);
  });
});

describe('a document', () => {
  it('follows its prompt if all instructions are followed', () => {
    const document = documentOf(
      ['punctuation:no_comma', {}],
      ['keywords:frequency', { keyword: 'a', frequency: 2, relation: 'less than', num_words: null }],
    );
    expect(Object.fromEntries(instructionResults(document, ['Sure, here:\na b']))).toEqual({
      prompt_level_strict_acc: 0,
      inst_level_strict_acc: [0, 1],
      prompt_level_loose_acc: 1,
      inst_level_loose_acc: [1, 1],
    });
    expect(instructionResults(document, [' ']).get('inst_level_loose_acc')).toEqual([0, 0]);
  });

  it('is refused where an instruction is not known or lacks a setting', () => {
    const run = (name: string, settings: object) => () => instructionResults(documentOf([name, settings]), ['x']);
    expect(run('x:y', {})).toThrow(new HookProblem('instruction_id_list: no instruction "x:y"'));
    expect(run('keywords:existence', {})).toThrow('keywords:existence: keywords is missing');
    const most = { keyword: 'a', frequency: 2, relation: 'at most' };
    expect(run('keywords:frequency', most)).toThrow('relation: expected "less than" or "at least"');
    const hostile = run('keywords:existence', { keywords: ['(x+)+$'] });
    expect(hostile).not.toThrow();
  });

  it('comes with a line on what may differ', () => {
    const [task] = tasksBelow(openLibrary([]).resolve('ifeval'));
    expect(notesOn([task!.settings, task!.settings])).toEqual([expect.stringContaining('ifeval, ifeval: languages (')]);
    expect(notesOn([tasksBelow(openLibrary([]).resolve('arc_easy'))[0]!.settings])).toEqual([]);
  });

  it('counts among all instructions, without a standard error', () => {
    const [task] = tasksBelow(openLibrary([]).resolve('leaderboard_ifeval'));
    const scores = new TaskScores(task!.settings);
    const one = documentOf(['punctuation:no_comma', {}]);
    const two = documentOf(['punctuation:no_comma', {}], ['startend:quotation', {}], ['detectable_format:title', {}]);
    const measured = [one, two].map((document) =>
      scores.measure({ document, gold: 0, choices: undefined, hasManyTargets: false, target: 0 }, [['a']]),
    );
    expect(Object.fromEntries(scores.figures(measured))).toEqual({
      'prompt_level_strict_acc,none': { value: 0.5, error: 0.5 },
      'inst_level_strict_acc,none': { value: 0.5, error: null },
      'prompt_level_loose_acc,none': { value: 0.5, error: 0.5 },
      'inst_level_loose_acc,none': { value: 0.5, error: null },
    });
  });
});
