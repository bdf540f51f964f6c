import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPrompts } from '../../engine/prompts.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-prompts-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const read = (content: string | Uint8Array, name = 'prompts.txt') => {
  const path = join(folder, name);
  writeFileSync(path, content);
  return readPrompts(path);
};

it('takes the name of an adapter beside a prompt, and nothing else as one', async () => {
  const chat = '{"messages":[{"role":"user","content":"hello"}],"adapter":"de"}';
  const prompts = await read(`{"prompt":"a","adapter":"fr"}\n{"tokens":[1]}\n${chat}\n`, 'a.jsonl');
  expect(prompts.map(({ adapter }) => adapter)).toEqual(['fr', undefined, 'de']);
  for (const wrong of ['""', '1', 'null', '["fr"]'])
    await expect(read(`{"prompt":"a","adapter":${wrong}}\n`, 'a.jsonl')).rejects.toThrow(
      `a.jsonl:1: adapter: expected the name of one, got ${wrong}`,
    );
});

const LINES = '{"prompt":"a"}\n\n{"tokens":[1,2]}\n{"messages":[{"role":"user","content":"hello"}]}\n';
const RECORDS = [
  { where: 'l:1', prompt: { prompt: 'a' } },
  { where: 'l:3', prompt: { tokens: [1, 2] } },
  {
    where: 'l:4',
    prompt: { messages: [{ role: 'user', content: 'hello' }] },
    exact: new Map([
      [
        'messages',
        [
          new Map([
            ['role', 'user'],
            ['content', 'hello'],
          ]),
        ],
      ],
    ]),
  },
];

describe('a file of prompts', () => {
  it('is a text with a prompt on each line', async () => {
    expect(await read('one\r\n\n two {\n')).toEqual([
      { where: 'prompts.txt:1', prompt: { prompt: 'one' } },
      { where: 'prompts.txt:3', prompt: { prompt: ' two {' } },
    ]);
  });

  it('is JSON lines where it looks like them, plain or compressed', async () => {
    expect(await read(LINES, 'l')).toEqual(RECORDS);
    expect(await read(gzipSync(LINES), 'l')).toEqual(RECORDS);
  });

  it.each([
    ['', 'holds no prompts'],
    ['x', 'bad.jsonl:1: not valid JSON'],
    ['{"prompt":"a"}\n[1]', 'bad.jsonl:2: expected a JSON object, got [1]'],
    ['{"prompt":"a"}\n{"promt":"a"}', 'bad.jsonl:2: unknown field "promt"'],
    ['{}', 'bad.jsonl:1: there is no prompt'],
    ['{"prompt":"a","tokens":[1]}', 'bad.jsonl:1: prompt and tokens are given at once'],
    ['{"prompt":7}', 'bad.jsonl:1: prompt: '],
    ['{"tokens":[]}', 'bad.jsonl:1: tokens: '],
    ['{"tokens":[1,-2]}', 'bad.jsonl:1: tokens[1]: '],
    ['{"tokens":[1.5]}', 'bad.jsonl:1: tokens[0]: '],
    ['{"messages":[{"role":"user"}]}', 'bad.jsonl:1: messages[0].content: there is no content'],
    ['{"messages":[{"role":"user","content":7}]}', 'bad.jsonl:1: messages[0].content: expected a text'],
    ['{"messages":[]}', 'bad.jsonl:1: messages: expected at least 1 of them, got 0'],
    ['{"messages":[{"role":"user","content":"a"}],"tools":"x"}', 'bad.jsonl:1: tools: expected a list, got "x"'],
    ['{"tokens":[1.5]}', 'bad.jsonl:1: tokens[0]: expected a whole number, got 1.5'],
    ['{"tokens":["1"]}', 'bad.jsonl:1: tokens[0]: expected a number, got "1"'],
    ['{"tokens":[-1]}', 'bad.jsonl:1: tokens[0]: expected at least 0, got -1'],
    ['{"messages":[{"role":"user","content":"a"}],"tools":{}}', 'bad.jsonl:1: tools: '],
    ['{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"tools":[]}}', 'stand beside it, not in it'],
    ['{"prompt":"a","tools":[]}', 'bad.jsonl:1: unknown field "tools"'],
    [`{"prompt":${'['.repeat(500)}}`, 'bad.jsonl:1: nested more than 200 deep'],
    [new Uint8Array([0x7b, 0xff, 0x0a]), 'bad.jsonl:1: the line is not UTF-8 text'],
    ['x'.repeat((4 << 20) + 1), 'bad.jsonl:1: the line is longer than 4 MiB'],
    [gzipSync('{"prompt":"a"}').subarray(0, 12), 'truncated or damaged'],
  ])('refuses %j', async (content, message) => {
    await expect(read(content, 'bad.jsonl')).rejects.toMatchObject({
      name: 'UserError',
      message: expect.stringContaining(message) as string,
    });
  });

  it('names what is not there', async () => {
    await expect(readPrompts(join(folder, 'none.txt'))).rejects.toThrow(/^no such prompt file: /);
    await expect(readPrompts(folder)).rejects.toThrow('is a folder, not a file');
  });
});
