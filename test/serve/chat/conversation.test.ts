/** Conversations over HTTP: what templates get of them, and what is refused. */
import { afterAll, describe, expect, it } from 'vitest';
import type { ScriptedServer } from './scripted.js';
import { HERMES, PARTS, PLAIN } from './templates.js';
import { closeServers, post, serverOf, tool, TOOLS, USER } from './wire.js';

afterAll(closeServers);

describe('a conversation', () => {
  const promptOf = (server: ScriptedServer): string =>
    server.served.model.texts.detokenizer.decode(server.submitted.at(-1)!.prompt);

  it('has arguments of earlier calls as objects, and results of tools', async () => {
    const server = await serverOf(HERMES, () => 'Fine.');
    const messages = [
      {
        role: 'developer',
        content: [
          { type: 'text', text: 'Be brief.' },
          { type: 'text', text: 'Be kind.' },
        ],
      },
      ...USER,
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'now', arguments: '{"a": [1]}' } }],
      },
      { role: 'tool', tool_call_id: 'a', content: 'noon' },
    ];
    expect((await post(server, { messages })).status).toBe(200);
    expect(promptOf(server)).toBe(
      '<|im_start|>system\nBe brief.\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' +
        '<tool_call>\n{"name": "now", "arguments": {"a": [1]}}\n</tool_call><|im_end|>\n' +
        '<|im_start|>tool\nnoon<|im_end|>\n' +
        '<|im_start|>assistant\n',
    );
  });

  it('has numbers and keys as they were written, in tools, arguments and variables', async () => {
    const server = await serverOf(
      '{{ tools | tojson }}{{ messages[1].tool_calls[0].function.arguments | tojson }}{{ own }}{# <tool_call> #}',
      () => 'Fine.',
    );
    const args = '{"b": 1.0, "2": 12345678901234567890, "1": 1e-07}';
    const call = JSON.stringify({ type: 'function', function: { name: 'f', arguments: args } });
    const messages = `[{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [${call}]}]`;
    const parameters = '{"type": "object", "properties": {"2": {"default": 1.0}, "1": {"maximum": 1e+22}}}';
    const tools = `[{"type": "function", "function": {"name": "f", "parameters": ${parameters}}}]`;
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: `{"messages": ${messages}, "tools": ${tools}, "chat_template_kwargs": {"own": 2.0}}`,
    });
    expect([response.status, promptOf(server)]).toEqual([200, `${tools}${args}2.0`]);
  });

  it('has the tokens that /tokenize gives for it', async () => {
    const server = await serverOf(HERMES, () => 'Fine.');
    const messages = [{ role: 'developer', content: [{ type: 'text', text: 'A' }] }, ...USER];
    await post(server, { messages, tools: TOOLS });
    const response = await fetch(`${server.url}/tokenize`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages, tools: TOOLS }),
    });
    expect(await response.json()).toMatchObject({ tokens: server.submitted.at(-1)!.prompt });
  });

  it('has parts where its template takes them', async () => {
    const server = await serverOf(PARTS, () => 'Fine.');
    await post(server, {
      messages: [
        { role: 'system', content: 'A' },
        { role: 'user', content: [{ type: 'text', text: 'B' }] },
      ],
    });
    expect(promptOf(server)).toBe('<|system|>A<|user|>B');
  });

  it.each([
    [{ messages: [] }, 'messages'],
    [{ messages: 'Hi' }, 'messages'],
    [{ messages: [{ content: 'Hi' }] }, 'messages[0].role'],
    [{ messages: [{ role: 'user' }] }, 'messages[0].content'],
    [
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      'messages[0].content[0]',
    ],
    [{ messages: [{ role: 'user', content: [{ type: 'input_audio' }] }] }, 'messages[0].content[0]'],
    [{ messages: [{ role: 'user', content: [{ type: 'file' }] }] }, 'messages[0].content[0]'],
    [
      { messages: [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: '{' } }] }] },
      'messages[0].tool_calls[0].function.arguments',
    ],
    [
      { messages: [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: '3' } }] }] },
      'messages[0].tool_calls[0].function.arguments',
    ],
    [{ messages: [{ role: 'assistant', tool_calls: [{}] }] }, 'messages[0].tool_calls[0].function'],
    [{ messages: [{ role: 'assistant', function_call: {} }] }, 'messages[0].function_call'],
    [{ tools: {} }, 'tools'],
    [{ tools: [{ type: 'web_search' }] }, 'tools[0]'],
    [{ tools: [tool('a b')] }, 'tools[0].function.name'],
    [{ tools: [tool('a'), tool('a')] }, 'tools[1].function.name'],
    [{ tools: [tool('a', 'x')] }, 'tools[0].function.parameters'],
    [{ tool_choice: 'required' }, 'tool_choice'],
    [{ tools: TOOLS, tool_choice: 'any' }, 'tool_choice'],
    [{ tools: TOOLS, tool_choice: { type: 'function', function: { name: 'x' } } }, 'tool_choice'],
    [{ top_logprobs: 2 }, 'top_logprobs'],
    [{ logprobs: true, top_logprobs: 21 }, 'top_logprobs'],
    [{ logprobs: 5 }, 'logprobs'],
    [{ max_tokens: 0 }, 'max_tokens'],
    [{ functions: [] }, 'functions'],
    [{ modalities: ['text', 'audio'] }, 'modalities'],
    [{ chat_template: '{{ 1 }}' }, 'chat_template'],
    [{ chat_template_kwargs: { messages: [] } }, 'chat_template_kwargs'],
    [{ chat_template_kwargs: { tokenize: true } }, 'chat_template_kwargs'],
    [{ continue_final_message: true, add_generation_prompt: true }, 'continue_final_message'],
    [{ response_format: { type: 'xml' } }, 'response_format'],
    [{ stream_options: {} }, 'stream_options'],
    [{ temperature: 101 }, 'temperature'],
  ])('is refused: %j', async (body, param) => {
    const server = await serverOf(HERMES, () => 'Fine.');
    const answer = await post(server, body);
    expect([answer.status, answer.body.error.param]).toEqual([400, param]);
    expect(answer.body.error).toMatchObject({ message: expect.any(String), type: 'invalid_request_error' });
    expect(server.submitted).toEqual([]);
  });

  it('is refused where it is too long, and never cut', async () => {
    const server = await serverOf(PLAIN, () => 'Fine.');
    const long = await post(server, { messages: [{ role: 'user', content: 'word '.repeat(500) }] });
    expect([long.status, long.body.error.code]).toEqual([400, 'context_length_exceeded']);
    const asked = await post(server, { max_tokens: 400 });
    expect([asked.status, asked.body.error.code]).toEqual([400, 'context_length_exceeded']);
  });

  it('is refused where the model has no template, or its template refuses it', async () => {
    const none = await post(await serverOf(undefined, () => 'x'), {});
    expect([none.status, none.body.error.message]).toEqual([400, expect.stringContaining('no chat template')]);
    const refusing = await serverOf("{{ raise_exception('no user') }}", () => 'x');
    const refused = await post(refusing, {});
    expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining('no user')]);
  });

  it('may have null for what it does not say, and fields that nobody knows', async () => {
    const server = await serverOf(PLAIN, () => 'Fine.');
    const nothing = { tools: null, tool_choice: null, logprobs: null, stop: null, stream_options: null, seed: null };
    const { status } = await post(server, { ...nothing, response_format: { type: 'text' }, store: true, user: 'x' });
    expect(status).toBe(200);
  });
});
