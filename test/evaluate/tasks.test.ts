import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { FILE_TASKS, fileTaskByName } from '../../evaluate/fileTasks.js';
import type { Question } from '../../evaluate/question.js';
import { withoutMarkup as preprocess } from '../../tasks/hooks/markup.js';
import { expectLinear } from '../support/growth.js';

const read = (task: string, record: unknown): Question => fileTaskByName(task).read(record, 5, 'file.jsonl:6');

describe('hellaswag', () => {
  const record = {
    ind: 3,
    activity_label: 'Roof repair',
    ctx_a: 'A man is on a roof.',
    ctx_b: 'he STARTS',
    ctx: 'unused',
    endings: [' falls [laughs].', 'sings  loudly', 'x', 'y [title] z'],
    label: 2,
  };

  it('prepares context and choices as the public harness does', () => {
    expect(read('hellaswag', record)).toEqual({
      docId: 5,
      context: 'Roof repair: A man is on a roof. He starts',
      choices: ['falls .', 'sings loudly', 'x', 'y. z'],
      gold: 2,
      delimiter: ' ',
      doc: {
        ...record,
        query: 'Roof repair: A man is on a roof. He starts',
        choices: ['falls .', 'sings loudly', 'x', 'y. z'],
        gold: 2,
      },
    });
  });

  it('keeps the space that an empty ctx_b makes only if text follows', () => {
    expect(read('hellaswag', { ...record, ctx_b: '' }).context).toBe('Roof repair: A man is on a roof.');
  });

  it('takes a label in quotes', () => {
    expect(read('hellaswag', { ...record, label: '3' }).gold).toBe(3);
  });

  it.each([
    ['a [b] c [d', 'a c [d'],
    ['a [b]  [c] d', 'a  d'],
    ['[title] x', ' x'],
    ['a] [b', 'a] [b'],
    ['[b\n[c] [d]\n]', '[b\n \n]'],
    ['[[a]] [', '] ['],
    ['x [title] y [title] z', 'x. y. z'],
    ['four    spaces', 'four  spaces'],
    ['[one\nline]', '[one\nline]'],
    ['[a\u2028b\rc]d', 'd'],
    ['[a[b]c]', 'c]'],
    ['\ufeff x\u0085', '\ufeff x'],
  ])('prepares %j as %j', (text, prepared) => {
    expect(preprocess(text)).toBe(prepared);
  });

  it('removes brackets as the regular expression does, in linear time', () => {
    const text = fc.array(fc.constantFrom('[', ']', 'a', '\n', '\r')).map((letters) => `x${letters.join('')}x`);
    fc.assert(
      fc.property(text, (sample) => {
        expect(preprocess(sample)).toBe(sample.replace(/\[[^\n]*?\]/g, ''));
      }),
      { numRuns: 1000 },
    );
    for (const part of ['[', '[\n'])
      expectLinear((size) => preprocess.bind(undefined, `x${part.repeat(size)}]`), 50_000);
  });

  it.each<[string, unknown, string]>([
    ['a list', [], 'expected a JSON object'],
    ['no endings', { ...record, endings: undefined }, 'no choices'],
    ['empty endings', { ...record, endings: [] }, 'no choices'],
    ['numbers for endings', { ...record, endings: [1, 2] }, '"endings" must be a list of texts'],
    [
      'an ending that is only markup',
      { ...record, endings: ['a', '[header]', 'b', 'c'] },
      'choice 1 (counted from 0) is empty',
    ],
    ['a label too high', { ...record, label: 4 }, 'label 4 names none of the 4 choices'],
    ['a negative label', { ...record, label: -1 }, 'label -1'],
    ['a broken label', { ...record, label: 1.5 }, 'label 1.5'],
    ['the test split', { ...record, label: '' }, 'the test split has no labels'],
    ['no context', { ...record, ctx_a: undefined }, '"ctx_a" must be text, found nothing'],
  ])('refuses %s', (_what, bad, message) => {
    expect(() => read('hellaswag', bad)).toThrow(UserError);
    expect(() => read('hellaswag', bad)).toThrow(`file.jsonl:6: `);
    expect(() => read('hellaswag', bad)).toThrow(message);
  });
});

describe('arc', () => {
  const original = {
    id: 'M1',
    question: {
      stem: 'Which is hot?',
      choices: [
        { text: 'ice', label: '1' },
        { text: 'fire', label: '2' },
        { text: 'fog', label: '3' },
      ],
    },
    answerKey: '2',
  };
  const huggingFace = {
    id: 'M1',
    question: 'Which is hot?',
    choices: { text: ['ice', 'fire', 'fog'], label: ['1', '2', '3'] },
    answerKey: '2',
  };

  it.each(['arc_easy', 'arc_challenge'])('%s is read from both schemas as the same question', (task) => {
    expect(read(task, original)).toEqual({
      docId: 5,
      context: 'Question: Which is hot?\nAnswer:',
      choices: ['ice', 'fire', 'fog'],
      gold: 1,
      delimiter: ' ',
      doc: huggingFace,
    });
    expect(read(task, huggingFace)).toEqual(read(task, original));
  });

  it.each<[string, unknown, string]>([
    ['text', 'x', 'expected a JSON object'],
    ['a key that is no label', { ...huggingFace, answerKey: 'B' }, '"answerKey" "B" is not among the labels 1, 2, 3'],
    ['a key that is a number', { ...huggingFace, answerKey: 2 }, '"answerKey" 2'],
    ['no choices', { ...huggingFace, choices: { text: [], label: [] } }, 'no choices'],
    ['no choices field', { ...huggingFace, choices: undefined }, 'no choices'],
    ['no choices (original)', { ...original, question: { stem: 'x' } }, 'no choices'],
    [
      'fewer labels than choices',
      { ...huggingFace, choices: { text: ['a', 'b'], label: ['1'] } },
      '2 choices but 1 labels',
    ],
    [
      'an empty choice',
      { ...huggingFace, choices: { text: ['a', ''], label: ['1', '2'] } },
      'choice 1 (counted from 0) is empty',
    ],
    ['another schema', { question: 'x', choices: ['a', 'b'], answer: 0 }, 'neither schema'],
  ])('refuses %s', (_what, bad, message) => {
    expect(() => read('arc_easy', bad)).toThrow(message);
  });
});

describe('multiple_choice', () => {
  it.each<[unknown, number]>([
    [1, 1],
    ['1', 1],
    ['B', 1],
    ['C', 2],
  ])('takes the label %j', (label, gold) => {
    const record = { context: 'Two and two are', choices: ['three', 'four', 'five'], label, topic: 'sums' };
    expect(read('multiple_choice', record)).toEqual({
      docId: 5,
      context: 'Two and two are',
      choices: record.choices,
      gold,
      delimiter: ' ',
      doc: record,
    });
  });

  it('takes context and label from question and answer, and uses texts unchanged', () => {
    const record = { question: ' Why?  ', choices: [' because', 'x'], answer: 0 };
    expect(read('multiple_choice', record)).toMatchObject({ context: ' Why?  ', choices: [' because', 'x'], gold: 0 });
  });

  it.each<[string, unknown, string]>([
    ['no context', { choices: ['a'], label: 0 }, '"context" or "question" must be text, found nothing'],
    ['no choices', { context: 'x', label: 0 }, 'no choices'],
    ['no label', { context: 'x', choices: ['a'] }, 'found nothing'],
    ['a label that is a choice', { context: 'x', choices: ['yes', 'no'], label: 'yes' }, 'found "yes"'],
    ['a letter too far', { context: 'x', choices: ['yes', 'no'], label: 'C' }, 'label 2 names none'],
  ])('refuses %s', (_what, bad, message) => {
    expect(() => read('multiple_choice', bad)).toThrow(message);
  });
});

it('an unknown task lists the known ones', () => {
  expect(FILE_TASKS.map(({ name }) => name)).toEqual(['hellaswag', 'arc_easy', 'arc_challenge', 'multiple_choice']);
  try {
    fileTaskByName('hellaswga');
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(UserError);
    expect(error).toMatchObject({
      message: 'unknown task "hellaswga"',
      hint: expect.stringContaining('hellaswag, arc_easy') as string,
    });
  }
});
