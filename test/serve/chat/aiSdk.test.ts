/** The AI SDK's provider for servers of this kind as a client. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, jsonSchema, stepCountIs, streamObject, streamText, tool } from 'ai';
import { afterAll, describe, expect, it } from 'vitest';
import type { ScriptedServer } from './scripted.js';
import { HERMES, PLAIN } from './templates.js';
import { closeServers, serverOf } from './wire.js';

afterAll(closeServers);

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });

const modelOf = ({ url }: ScriptedServer) =>
  createOpenAICompatible({
    ...{ name: 'tilewright', baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true },
  })('demo');
const CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>';
const CITY = jsonSchema<{ city: string }>({
  ...{ type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
});
const THOUGHT = '<think>\nHm, two.\n</think>\n\nTwo 😀.';

describe('the AI SDK', () => {
  it('reads a text with its thoughts', async () => {
    const model = modelOf(await serverOf(HERMES, () => THOUGHT));
    const { text, reasoningText, finishReason, usage } = await generateText({ model, prompt: 'Hi' });
    expect([text, reasoningText, finishReason]).toEqual(['Two 😀.', 'Hm, two.', 'stop']);
    expect(usage.outputTokens).toBeGreaterThan(5);
    expect(usage.inputTokenDetails.cacheReadTokens).toBe(3);
    expect(usage.outputTokenDetails.reasoningTokens).toBeGreaterThan(3);
  });

  it('reads a stream with its thoughts', async () => {
    const model = modelOf(await serverOf(HERMES, () => THOUGHT));
    const result = streamText({ model, prompt: 'Hi' });
    let [text, thoughts] = ['', ''];
    for await (const part of result.fullStream) {
      if (part.type === 'error') throw part.error;
      if (part.type === 'text-delta') text += part.text;
      if (part.type === 'reasoning-delta') thoughts += part.text;
    }
    expect([text, thoughts, await result.finishReason]).toEqual(['Two 😀.', 'Hm, two.', 'stop']);
    expect((await result.usage).totalTokens).toBeGreaterThan(10);
  });

  it('calls tools, also of a stream', async () => {
    const server = await serverOf(HERMES, (prompt) => (prompt.includes('22 degrees') ? 'It has 22 degrees.' : CALL));
    const asked: unknown[] = [];
    const options = {
      model: modelOf(server),
      prompt: 'How warm is it in Paris?',
      stopWhen: stepCountIs(3),
      tools: {
        get_weather: tool({
          description: 'The weather',
          inputSchema: CITY,
          execute: async (input) => {
            asked.push(input);
            return '22 degrees';
          },
        }),
      },
    };
    const { text, steps } = await generateText(options);
    expect([text, steps.map(({ finishReason }) => finishReason)]).toEqual([
      'It has 22 degrees.',
      ['tool-calls', 'stop'],
    ]);
    expect(await streamText(options).text).toBe('It has 22 degrees.');
    expect(asked).toEqual([{ city: 'Paris' }, { city: 'Paris' }]);
  });

  it('asks for objects by their schema', async () => {
    const server = await serverOf(PLAIN, () => '{"city": "Paris"}');
    const asked = { model: modelOf(server), schema: CITY, prompt: 'Where?' };
    expect((await generateObject(asked)).object).toEqual({ city: 'Paris' });
    const streamed = streamObject(asked);
    const parts: unknown[] = [];
    for await (const part of streamed.partialObjectStream) parts.push(part);
    expect(parts.at(-1)).toEqual({ city: 'Paris' });
    expect(await streamed.object).toEqual({ city: 'Paris' });
    for (const { grammar } of server.submitted)
      expect(grammar).toMatchObject({ kind: 'schema', schema: { properties: { city: { type: 'string' } } } });
  });

  it('is told what is wrong with a request', async () => {
    const model = modelOf(await serverOf(PLAIN, () => 'x'));
    const failed = generateText({ model, prompt: 'word '.repeat(400), maxRetries: 0 });
    await expect(failed).rejects.toThrow(/maximum context length/);
  });
});
