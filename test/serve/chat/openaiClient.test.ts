/** The `openai` package as a client: what it reads, and what its helpers insist on. */
import OpenAI, { APIError, BadRequestError, NotFoundError } from 'openai';
import type { ChatCompletionCreateParamsNonStreaming, ChatCompletionTool } from 'openai/resources/chat/completions';
import { afterAll, describe, expect, it } from 'vitest';
import type { ScriptedServer } from './scripted.js';
import { HERMES, PLAIN } from './templates.js';
import { closeServers, serverOf } from './wire.js';

afterAll(closeServers);

const clientOf = ({ url }: ScriptedServer): OpenAI =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: 'EMPTY', maxRetries: 0 });
const ASKED = { model: 'demo', messages: [{ role: 'user', content: 'Hi' }] } as const satisfies Pick<
  ChatCompletionCreateParamsNonStreaming,
  'model' | 'messages'
>;
const WEATHER: ChatCompletionTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>';

describe('the openai client', () => {
  it('reads an answer', async () => {
    const client = clientOf(await serverOf(PLAIN, () => 'Hello 😀'));
    const { choices, usage } = await client.chat.completions.create({ ...ASKED, logprobs: true, top_logprobs: 2 });
    expect(choices[0]!.message.content).toBe('Hello 😀');
    expect(choices[0]!.logprobs!.content!.flatMap(({ bytes }) => bytes ?? [])).toEqual([
      ...[...Buffer.from('Hello 😀')],
      ...choices[0]!.logprobs!.content!.at(-1)!.bytes!,
    ]);
    expect(usage!.total_tokens).toBe(usage!.prompt_tokens + usage!.completion_tokens);
  });

  it('reads a stream, and the last chunk has the usage', async () => {
    const client = clientOf(await serverOf(PLAIN, () => 'Hello, how are you?'));
    const stream = await client.chat.completions.create({
      ...{ ...ASKED, stream: true, n: 2 },
      stream_options: { include_usage: true },
    });
    const texts = ['', ''];
    let total = 0;
    for await (const { choices, usage } of stream) {
      for (const { index, delta } of choices) texts[index]! += delta.content ?? '';
      total = usage?.total_tokens ?? total;
    }
    expect(texts).toEqual(['Hello, how are you?', 'Hello, how are you?']);
    expect(total).toBeGreaterThan(10);
  });

  it('gathers a stream by its helper, which refuses what is not whole', async () => {
    const client = clientOf(await serverOf(HERMES, () => `<think>\nHm.\n</think>\n\nLook:\n${CALL}\n${CALL}`));
    const seen: string[] = [];
    const runner = client.chat.completions.stream({ ...ASKED, tools: [WEATHER], logprobs: true });
    runner.on('content.delta', ({ delta }) => seen.push(delta));
    runner.on('tool_calls.function.arguments.done', ({ name, arguments: text }) => seen.push(name, text));
    const { choices } = await runner.finalChatCompletion();
    const { content, tool_calls: calls } = choices[0]!.message;
    expect(content).toBe('Look:');
    expect(choices[0]!.finish_reason).toBe('tool_calls');
    expect(calls!.map((call) => call.type === 'function' && JSON.parse(call.function.arguments))).toEqual([
      { city: 'Paris' },
      { city: 'Paris' },
    ]);
    expect(new Set(calls!.map(({ id }) => id)).size).toBe(2);
    const args = '{"city": "Paris"}';
    expect(seen.slice(-4)).toEqual(['get_weather', args, 'get_weather', args]);
    expect(seen.slice(0, -4).join('')).toBe('Look:');
  });

  it('runs tools until there is an answer', async () => {
    const prompts: string[] = [];
    const server = await serverOf(HERMES, (prompt) => {
      prompts.push(prompt);
      return prompt.includes('22 degrees') ? 'It has 22 degrees.' : CALL;
    });
    const asked: unknown[] = [];
    const runner = clientOf(server).chat.completions.runTools({
      ...ASKED,
      messages: [{ role: 'user', content: 'How warm is it in Paris?' }],
      tools: [
        {
          type: 'function',
          function: {
            name: 'get_weather',
            description: 'The weather',
            parameters: { type: 'object', properties: { city: { type: 'string' } } },
            parse: JSON.parse,
            function: (args: unknown) => {
              asked.push(args);
              return '22 degrees';
            },
          },
        },
      ],
    });
    expect(await runner.finalContent()).toBe('It has 22 degrees.');
    expect(asked).toEqual([{ city: 'Paris' }]);
    expect(prompts[1]).toContain(`<|im_start|>assistant\n${CALL}<|im_end|>\n<|im_start|>tool\n22 degrees<|im_end|>`);
  });

  it('is told what is wrong with a request', async () => {
    const client = clientOf(await serverOf(PLAIN, () => 'x'));
    const failure = async (body: Partial<ChatCompletionCreateParamsNonStreaming>): Promise<unknown> =>
      client.chat.completions.create({ ...ASKED, ...body }).catch((error: unknown) => error);
    const long = await failure({ messages: [{ role: 'user', content: 'word '.repeat(400) }] });
    expect(long).toBeInstanceOf(BadRequestError);
    expect(long).toMatchObject({ status: 400, code: 'context_length_exceeded', type: 'invalid_request_error' });
    expect(await failure({ model: 'other' })).toBeInstanceOf(NotFoundError);
    expect(await failure({ temperature: -1 })).toMatchObject({ status: 400, param: 'temperature' });
  });

  it('throws where a stream breaks off', async () => {
    const error = Object.assign(new Error('x'), { name: 'NonFiniteError' });
    const client = clientOf(await serverOf(PLAIN, () => ({ answer: 'Hello', error })));
    const stream = await client.chat.completions.create({ ...ASKED, stream: true });
    const read = async (): Promise<string> => {
      let text = '';
      for await (const { choices } of stream) text += choices[0]?.delta.content ?? '';
      return text;
    };
    const failed = await read().catch((thrown: unknown) => thrown);
    expect(failed).toBeInstanceOf(APIError);
    expect(String(failed)).toContain('NaN or infinite');
  });

  it('ends what it no longer wants', async () => {
    const server = await serverOf(PLAIN, () => ({ answer: 'Hello', isEndless: true }));
    const before = server.cancelled.count;
    const stream = await clientOf(server).chat.completions.create({ ...ASKED, stream: true });
    for await (const { choices } of stream) if ((choices[0]?.delta.content ?? '') !== '') break;
    await expect.poll(() => server.cancelled.count, { timeout: 4000 }).toBe(before + 1);
  });
});
