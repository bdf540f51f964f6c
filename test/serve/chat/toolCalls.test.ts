/** Calls of tools in answers, each as its family writes it. However an answer is cut, the result is the same. */
import { describe, expect, it } from 'vitest';
import { ToolCallReader } from '../../../serve/chat/toolCalls.js';
import { pick, type Random, randomOf } from '../../fuzz/mutate.js';
import { expectLinear } from '../../support/growth.js';
import { chars, cutsOf, Gathered, randomCut } from './support.js';

const HERMES = { open: '<tool_call>', close: '</tool_call>' };
const LLAMA = { open: '<|python_tag|>', isBare: true };
const MISTRAL = { open: '[TOOL_CALLS]', beforeArguments: '[ARGS]', beforeId: '[CALL_ID]' };
const FORMATS = { HERMES, LLAMA, MISTRAL };
type Name = keyof typeof FORMATS;

const KNOWN = new Set(['f', 'get_weather', 'now']);

function read(name: Name, parts: readonly string[], isCut = false): Gathered {
  const gathered = new Gathered();
  const reader = new ToolCallReader(FORMATS[name], KNOWN, gathered);
  for (const part of parts) reader.push(part);
  reader.end(isCut);
  return gathered;
}

/** The result of a text, which is the same however it is cut. */
function result(name: Name, text: string, isCut = false): unknown {
  const whole = read(name, [text], isCut).result;
  for (const parts of cutsOf(text)) expect([parts, read(name, parts, isCut).result]).toEqual([parts, whole]);
  return whole;
}

const call = (name: string, args: string, id?: string): unknown => ({ name, arguments: args, id });
const WEATHER = '{"name": "get_weather", "arguments": {"city": "Zürich 😀", "days": [1, {"a": "}"}]}}';
const WEATHER_ARGUMENTS = '{"city": "Zürich 😀", "days": [1, {"a": "}"}]}';

describe('calls of Hermes and Qwen', () => {
  it.each([
    ['one', `<tool_call>\n${WEATHER}\n</tool_call>`, '', [call('get_weather', WEATHER_ARGUMENTS)]],
    [
      'one behind text',
      `Let me look.\n\n<tool_call>${WEATHER}</tool_call>\n`,
      'Let me look.',
      [call('get_weather', WEATHER_ARGUMENTS)],
    ],
    [
      'two',
      '<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"name":"now","arguments":{"a":1}}</tool_call>',
      '',
      [call('f', '{}'), call('now', '{"a":1}')],
    ],
    [
      'two in a block',
      '<tool_call>\n{"name":"f","arguments":{}}\n{"name":"now","arguments":{}}\n</tool_call>',
      '',
      [call('f', '{}'), call('now', '{}')],
    ],
    ['one without arguments', '<tool_call>{"name": "now"}</tool_call>', '', [call('now', '{}')]],
    ['one with null', '<tool_call>{"name": "now", "arguments": null}</tool_call>', '', [call('now', '{}')]],
    [
      'arguments before the name',
      '<tool_call>{"arguments": {"a": "b"}, "id": 3, "name": "f"}</tool_call>',
      '',
      [call('f', '{"a": "b"}')],
    ],
    [
      'arguments as a text',
      '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\\\n\\u00e9\\"}"}</tool_call>',
      '',
      [call('f', '{"a": "\\né"}')],
    ],
    [
      'a mark within a text of JSON',
      '<tool_call>{"name": "f", "arguments": {"a": "</tool_call> \\" } \\\\"}}</tool_call>',
      '',
      [call('f', '{"a": "</tool_call> \\" } \\\\"}')],
    ],
    [
      'a bracket too many',
      '<tool_call>{"name": "f", "arguments": {"a": 1}}}\n</tool_call> Done.',
      'Done.',
      [call('f', '{"a": 1}')],
    ],
    ['a bracket too few', '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>', '', [call('f', '{"a": 1}')]],
    [
      'a block that is not closed before the next',
      '<tool_call>{"name":"f","arguments":{}}<tool_call>{"name":"now"}</tool_call>',
      '',
      [call('f', '{}'), call('now', '{}')],
    ],
    [
      'arguments that are no JSON',
      '<tool_call>{"name": "f", "arguments": {\'a\': 1}}</tool_call>',
      '',
      [call('f', "{'a': 1}}")],
    ],
    ['no call', '<tool_call>hello</tool_call> you', '<tool_call>hello</tool_call> you', []],
    ['an object that is none', 'a <tool_call>{"a": 1}</tool_call> b', 'a <tool_call>{"a": 1}</tool_call> b', []],
    ['an empty block', '<tool_call></tool_call>', '<tool_call></tool_call>', []],
    ['parts of a mark', 'a < b <tool <tool_call', 'a < b <tool <tool_call', []],
    ['spaces at the end of a text without calls', 'Hello. \n', 'Hello. \n', []],
  ])('%s', (_, text, content, calls) => {
    expect(result('HERMES', text)).toEqual({ reasoning: '', content, calls });
  });

  it('have an unknown name as well: the client says so to the model', () => {
    expect(result('HERMES', '<tool_call>{"name": "what", "arguments": {}}</tool_call>')).toMatchObject({
      calls: [call('what', '{}')],
    });
  });

  it('that were cut keep what there is of them', () => {
    expect(result('HERMES', '<tool_call>{"name": "f", "arguments": {"a": "b', true)).toMatchObject({
      calls: [call('f', '{"a": "b')],
    });
    expect(result('HERMES', '<tool_call>{"name": "f"', true)).toMatchObject({ calls: [call('f', '')] });
    expect(result('HERMES', '<tool_call>{"na', true)).toMatchObject({ content: '<tool_call>{"na', calls: [] });
  });
});

describe('calls of Llama 3', () => {
  it.each([
    [
      'one',
      ' {"name": "get_weather", "parameters": {"city": "Paris"}}',
      '',
      [call('get_weather', '{"city": "Paris"}')],
    ],
    ['one behind its mark', '<|python_tag|>{"name": "what", "parameters": {}}', '', [call('what', '{}')]],
    [
      'several',
      '{"name": "f", "parameters": {}}; {"name": "now", "parameters": {"a": 1}}',
      '',
      [call('f', '{}'), call('now', '{"a": 1}')],
    ],
    [
      'one that names its type',
      '{"type": "function", "name": "f", "parameters": {"a": 1}}',
      '',
      [call('f', '{"a": 1}')],
    ],
    ['one before text', '{"name": "f", "parameters": {}}\n\nThat was it.', 'That was it.', [call('f', '{}')]],
    ['an object that is an answer', '{"name": "Alice", "age": 3}', '{"name": "Alice", "age": 3}', []],
    ['code', '<|python_tag|>print({"name": "f"})', '<|python_tag|>print({"name": "f"})', []],
    ['text', 'Hello {"name": "f", "parameters": {}}', 'Hello {"name": "f", "parameters": {}}', []],
    ['text before a mark', 'Hm. <|python_tag|>{"name": "f", "parameters": {}}', 'Hm.', [call('f', '{}')]],
    ['spaces', ' \n', ' \n', []],
  ])('%s', (_, text, content, calls) => {
    expect(result('LLAMA', text)).toEqual({ reasoning: '', content, calls });
  });
});

describe('calls of Mistral', () => {
  it.each([
    [
      'a list',
      `[TOOL_CALLS][${WEATHER}, {"name": "f", "arguments": {}}]`,
      '',
      [call('get_weather', WEATHER_ARGUMENTS), call('f', '{}')],
    ],
    ['a list behind a space', '[TOOL_CALLS] [{"arguments": {"a": 1}, "name": "f"}]', '', [call('f', '{"a": 1}')]],
    ['names', '[TOOL_CALLS]f[ARGS]{"a": "]"}[TOOL_CALLS]now[ARGS]{}', '', [call('f', '{"a": "]"}'), call('now', '{}')]],
    ['a name with an id', '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}', '', [call('f', '{"a": 1}', 'abcdefghi')]],
    [
      'a name before a brace',
      '[TOOL_CALLS]get_weather{"city": "Paris"}',
      '',
      [call('get_weather', '{"city": "Paris"}')],
    ],
    ['a name behind text', 'Well. [TOOL_CALLS]f[ARGS] {"a": 1}', 'Well.', [call('f', '{"a": 1}')]],
    ['text', '[TOOL_CALLS]I would call f.', '[TOOL_CALLS]I would call f.', []],
    ['a list of other things', '[TOOL_CALLS][1, 2]', '[TOOL_CALLS][1, 2]', []],
    ['an empty list', 'a [TOOL_CALLS][]', 'a [TOOL_CALLS][]', []],
    ['arguments that are no JSON', '[TOOL_CALLS]f[ARGS]{a: <1>}', '', [call('f', '{a: <1>}')]],
  ])('%s', (_, text, content, calls) => {
    expect(result('MISTRAL', text)).toEqual({ reasoning: '', content, calls });
  });
});

describe('any text', () => {
  const PIECES: readonly string[] = [
    ...Object.values(FORMATS).flatMap((format) => Object.values(format).filter((each) => typeof each === 'string')),
    ...[
      '<',
      '<tool',
      '</tool_call',
      '[',
      ']',
      '[TOOL',
      '[ARGS',
      '{',
      '}',
      '{"',
      '"',
      '\\',
      '\\"',
      '"}',
      ',',
      ';',
      ':',
      ' ',
    ],
    ...[
      '\n',
      '"name"',
      '"name": "f"',
      '"arguments"',
      '"parameters": ',
      '{}',
      'f',
      'now',
      'null',
      '1',
      'é',
      '😀',
      '\\u00e9',
    ],
    ...[WEATHER, '{"name": "f", "arguments": ', '{"name": "now", "parameters": {}}', '"{\\"a\\": 1}"'],
  ];
  const text = (random: Random): string =>
    Array.from({ length: 1 + Math.floor(random() * 14) }, () => pick(random, PIECES)).join('');

  it.each(Object.keys(FORMATS) as Name[])('has one result however it is cut: %s', (name) => {
    const random = randomOf(7);
    for (let i = 0; i < 1500; i++) {
      const each = text(random);
      const isCut = random() < 0.5;
      const whole = read(name, [each], isCut).result;
      const cuts = [chars(each), randomCut(random, each), randomCut(random, each)];
      for (const parts of cuts) expect([parts, read(name, parts, isCut).result]).toEqual([parts, whole]);
    }
  });

  it('without a call is the content, unchanged', () => {
    const random = randomOf(9);
    for (let i = 0; i < 3000; i++) {
      const each = text(random);
      for (const name of Object.keys(FORMATS) as Name[]) {
        const { calls, content } = read(name, [each]).result;
        if (calls.length === 0) expect([name, content]).toEqual([name, each]);
      }
    }
  });

  it('has arguments that are JSON where its calls are', () => {
    const random = randomOf(5);
    const value = (depth: number): unknown => {
      const kind = Math.floor(random() * (depth > 2 ? 4 : 6));
      if (kind === 4) return Array.from({ length: Math.floor(random() * 4) }, () => value(depth + 1));
      if (kind === 5)
        return Object.fromEntries(
          Array.from({ length: Math.floor(random() * 4) }, () => [pick(random, PIECES), value(depth + 1)]),
        );
      return [random() < 0.5, null, Math.round(random() * 1e6) / 1e3, pick(random, PIECES)][kind];
    };
    for (let i = 0; i < 500; i++) {
      const args = { a: value(0), b: value(0) };
      const json = JSON.stringify(args, null, random() < 0.5 ? 2 : 0);
      const texts: Record<Name, string> = {
        HERMES: `<tool_call>\n{"name": "f", "arguments": ${json}}\n</tool_call>`,
        LLAMA: `{"name": "f", "parameters": ${json}}`,
        MISTRAL: random() < 0.5 ? `[TOOL_CALLS][{"name": "f", "arguments": ${json}}]` : `[TOOL_CALLS]f[ARGS]${json}`,
      };
      for (const name of Object.keys(FORMATS) as Name[]) {
        const { calls, content } = read(name, randomCut(random, texts[name])).result;
        expect([content, calls.length, JSON.parse(calls[0]!.arguments)]).toEqual(['', 1, args]);
      }
    }
  });

  it.each([
    ['spaces', ' '],
    ['beginnings of marks', '<tool_call'],
    ['brackets', '<tool_call>{"arguments": {'],
    ['quotes', '<tool_call>{"name": "f", "arguments": "\\"'],
    ['a list', '[TOOL_CALLS]['],
    ['objects that are none', '{"a": {}}, '],
  ])('is read in time that grows with its length: %s', (_, piece) => {
    for (const name of Object.keys(FORMATS) as Name[])
      expectLinear((size) => {
        const parts = Array.from({ length: size }, () => piece);
        return () => read(name, parts);
      }, 4000);
  });
});
