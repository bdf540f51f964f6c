/** Thoughts are split from what is said, however an answer is cut. */
import { describe, expect, it } from 'vitest';
import { type AnswerForm, AnswerReader } from '../../../serve/chat/answerReader.js';
import type { ReasoningStart } from '../../../serve/chat/reasoning.js';
import { pick, randomOf } from '../../fuzz/mutate.js';
import { chars, cutsOf, Gathered, randomCut } from './support.js';

const MARKS = { open: '<think>', close: '</think>' };
const CALLS = { format: { open: '<tool_call>', close: '</tool_call>' }, known: new Set(['f']) };

function read(form: AnswerForm, parts: readonly string[]): Gathered['result'] {
  const gathered = new Gathered();
  const reader = new AnswerReader(form, gathered);
  for (const part of parts) reader.push(part);
  reader.end(false);
  return gathered.result;
}

function result(start: ReasoningStart, text: string, calls?: AnswerForm['calls']): Gathered['result'] {
  const form = { reasoning: { marks: MARKS, start }, calls };
  const whole = read(form, [text]);
  for (const parts of cutsOf(text)) expect([parts, read(form, parts)]).toEqual([parts, whole]);
  return whole;
}

describe('thoughts', () => {
  it.each([
    ['possible', '<think>\nHm, 2.\n</think>\n\nTwo. ', 'Hm, 2.', 'Two. '],
    ['possible', ' \n<think></think>Two.', '', 'Two.'],
    ['possible', 'Two. <think>no</think>', '', 'Two. <think>no</think>'],
    ['possible', '  <thin', '', '  <thin'],
    ['possible', '  <thing', '', '  <thing'],
    ['possible', '<think>endless </thin', 'endless </thin', ''],
    ['opened', '\nHm.\n</think>\n\nTwo.', 'Hm.', 'Two.'],
    ['opened', 'a </think', 'a </think', ''],
    ['opened', '<think>x</think>y</think>', '<think>x', 'y</think>'],
    ['closed', '<think>x</think>y', '', '<think>x</think>y'],
  ] as const)('%s: %j', (start, text, reasoning, content) => {
    expect(result(start, text)).toEqual({ reasoning, content, calls: [] });
  });

  it('come before calls, and may speak of them', () => {
    const text = '<think>\nI use <tool_call>.\n</think>\n\nOne moment.\n<tool_call>\n{"name": "f"}\n</tool_call>';
    expect(result('possible', text, CALLS)).toEqual({
      reasoning: 'I use <tool_call>.',
      content: 'One moment.',
      calls: [{ name: 'f', id: undefined, arguments: '{}' }],
    });
  });

  it('have one result for any text and any cut', () => {
    const random = randomOf(3);
    const pieces = ['<think>', '</think>', '<', '</', 'think>', ' ', '\n', 'a', '<tool_call>', '{"name": "f"}', 'é😀'];
    for (let i = 0; i < 2000; i++) {
      const text = Array.from({ length: 1 + Math.floor(random() * 10) }, () => pick(random, pieces)).join('');
      const start = pick(random, ['opened', 'possible', 'closed'] as const);
      const form = { reasoning: { marks: MARKS, start }, calls: random() < 0.5 ? CALLS : undefined };
      const whole = read(form, [text]);
      for (const parts of [chars(text), randomCut(random, text), randomCut(random, text)])
        expect([start, parts, read(form, parts)]).toEqual([start, parts, whole]);
    }
  });
});
