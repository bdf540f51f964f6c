/** Chats with a server process: the `openai` client and the AI SDK, a model that computes, grammars that it follows. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, jsonSchema, streamText } from 'ai';
import OpenAI from 'openai';
import type { ChatCompletionCreateParamsNonStreaming, ChatCompletionTool } from 'openai/resources/chat/completions';
import { copyFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HERMES } from '../serve/chat/templates.js';
import { type ServerProcess, startServer } from './serverProcess.js';
import { isBuilt, ROOT, temporaryFolder } from './support.js';
import { casesHere } from '../support/thorough.js';

const DEVICE = ['--precision', 'f32', '--target', 'cpu', '--threads', '2', '--batch-tokens', '64'];
type Asked = Omit<ChatCompletionCreateParamsNonStreaming, 'model' | 'messages'>;
const ASKED = {
  model: 'chat',
  messages: [{ role: 'user' as const, content: 'Tell me of the sky.' }],
  max_completion_tokens: 24,
};
const CITY = {
  type: 'object',
  properties: { city: { enum: ['Paris', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const TOOLS: ChatCompletionTool[] = [
  { type: 'function', function: { name: 'get_weather', parameters: CITY } },
  { type: 'function', function: { name: 'now' } },
];

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });

describe.skipIf(!isBuilt)('a chat with a server process', () => {
  let server: ServerProcess;
  let client: OpenAI;

  beforeAll(async () => {
    const folder = temporaryFolder();
    const demo = join(ROOT, 'models', 'demo');
    for (const file of readdirSync(demo)) copyFileSync(join(demo, file), join(folder, file));
    writeFileSync(join(folder, 'chat_template.jinja'), HERMES);
    server = await startServer(folder, ...DEVICE, '--served-model-name', 'chat', '--reasoning-parser', 'none');
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'EMPTY', maxRetries: 0 });
  });
  afterAll(() => server.stop().then(() => undefined));

  const text = async (more: Asked = {}): Promise<readonly (string | null)[]> => {
    const { choices } = await client.chat.completions.create({ ...ASKED, ...more });
    return choices.map(({ message }) => message.content);
  };
  const streamed = async (more: Asked = {}): Promise<readonly string[]> => {
    const texts: string[] = [];
    const stream = await client.chat.completions.create({ ...ASKED, ...more, stream: true });
    for await (const { choices } of stream)
      for (const { index, delta } of choices) texts[index] = (texts[index] ?? '') + (delta.content ?? '');
    return texts;
  };

  const WAYS = [
    ['greedy', { temperature: 0 }],
    ['drawn', { temperature: 0.9, top_p: 0.9, seed: 11, n: 3 }],
  ] as const;
  it.each(casesHere<(typeof WAYS)[number]>(WAYS, 1))(
    'has one %s text, streamed or not, alone or among others, as completions have it',
    async (_, more) => {
      const whole = await text(more);
      const others = Array.from({ length: 12 }, (_each, i) => text({ ...more, seed: i, temperature: 1 }));
      expect(await streamed(more)).toEqual(whole);
      expect(await text(more)).toEqual(whole);
      await Promise.all(others);
      const { choices } = await client.completions.create({
        ...{ ...more, model: 'chat', max_tokens: 24 },
        prompt: '<|im_start|>user\nTell me of the sky.<|im_end|>\n<|im_start|>assistant\n',
        // The template writes all special tokens itself.
        ...{ add_special_tokens: false },
      });
      expect(choices.map((choice) => choice.text)).toEqual(whole);
    },
  );

  it('reports the seed that it has drawn, with which the text comes again', async () => {
    const first = await client.chat.completions.create({ ...ASKED });
    const { seed, system_fingerprint: fingerprint } = first as typeof first & { readonly seed: number };
    const again = await client.chat.completions.create({ ...ASKED, seed });
    expect(again.choices).toEqual(first.choices);
    expect(again.system_fingerprint).toBe(fingerprint);
    expect(await text({})).not.toEqual(first.choices.map(({ message }) => message.content));
  });

  it('writes JSON where that is asked, and what a schema accepts', async () => {
    const schema = { name: 'visit', schema: CITY, strict: true };
    for (let seed = 0; seed < 4; seed++) {
      const [found] = await text({ seed, response_format: { type: 'json_schema', json_schema: schema } });
      const value = JSON.parse(found!) as { readonly city: string; readonly days: number };
      expect(Object.keys(value)).toEqual(['city', 'days']);
      expect(['Paris', 'Rome']).toContain(value.city);
      expect([1, 2, 3, 4, 5, 6, 7, 8, 9]).toContain(value.days);
    }
    const bad = { name: 'x', schema: { type: 'object', propertyNames: { dependentRequired: 3 } } };
    const refused = await text({ response_format: { type: 'json_schema', json_schema: bad } }).catch((e: unknown) => e);
    expect(refused).toMatchObject({ status: 400 });
  });

  it('calls the tools that it must', async () => {
    const asked = { ...ASKED, tools: TOOLS, tool_choice: 'required', parallel_tool_calls: false, seed: 5 } as const;
    const { choices } = await client.chat.completions.create({ ...asked, max_completion_tokens: 80 });
    const [{ message, finish_reason: reason }] = choices as [(typeof choices)[0]];
    expect([message.content, reason, message.tool_calls?.length]).toEqual([null, 'tool_calls', 1]);
    const [call] = message.tool_calls!;
    if (call?.type !== 'function') throw new Error('no call of a function');
    expect(['get_weather', 'now']).toContain(call.function.name);
    expect(JSON.parse(call.function.arguments)).toBeTypeOf('object');

    const runner = client.chat.completions.stream({ ...asked, max_completion_tokens: 80 });
    const gathered = (await runner.finalChatCompletion()).choices[0]!.message;
    expect(gathered.tool_calls).toMatchObject(message.tool_calls!);

    const named = { type: 'function', function: { name: 'get_weather' } } as const;
    const weather = await client.chat.completions.create({ ...asked, max_completion_tokens: 80, tool_choice: named });
    expect(weather.choices[0]).toMatchObject({
      finish_reason: 'stop',
      message: { tool_calls: [{ function: { name: 'get_weather', arguments: expect.stringMatching(/"city"/) } }] },
    });
  });

  it('gives the AI SDK texts and objects', async () => {
    const provider = createOpenAICompatible({
      ...{ name: 'tilewright', baseURL: `${server.url}/v1`, supportsStructuredOutputs: true },
    });
    const asked = { model: provider('chat'), prompt: 'Tell me of the sky.', temperature: 0, maxOutputTokens: 24 };
    expect([await streamText(asked).text]).toEqual(await text({ temperature: 0 }));
    const { object } = await generateObject({
      ...asked,
      schema: jsonSchema<{ city: string }>({ ...CITY, type: 'object' }),
    });
    expect(['Paris', 'Rome']).toContain(object.city);
  });
});
