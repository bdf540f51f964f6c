/** /v1/chat/completions over HTTP: what comes out, byte by byte where clients look. */
import { afterAll, describe, expect, it } from 'vitest';
import type { Submitted } from './scripted.js';
import { HERMES, LLAMA, MISTRAL, OPENED, PLAIN } from './templates.js';
import { closeServers, type Json, post, serverOf, streamed, TOOLS, USER, WEATHER } from './wire.js';

afterAll(closeServers);

describe('an answer', () => {
  it('has what clients read', async () => {
    const server = await serverOf(PLAIN, () => 'Hello, how are you?');
    const { status, body } = await post(server, { model: 'demo', seed: 7 });
    expect(status).toBe(200);
    expect(body).toEqual({
      id: expect.stringMatching(/^chatcmpl-/),
      object: 'chat.completion',
      created: expect.any(Number),
      model: 'demo',
      system_fingerprint: 'made-up',
      seed: 7,
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello, how are you?', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
          stop_reason: null,
        },
      ],
      usage: {
        prompt_tokens: expect.any(Number),
        completion_tokens: expect.any(Number),
        total_tokens: body.usage.prompt_tokens + body.usage.completion_tokens,
        prompt_tokens_details: { cached_tokens: 3 },
      },
    });
  });

  it('is streamed with a role first, a chunk a token, and the reason of its end in one of its own', async () => {
    const server = await serverOf(PLAIN, () => 'Hello, how are you?');
    const chunks = await streamed(server, { stream_options: { include_usage: true } });
    const ids = new Set(chunks.map(({ id, created, object, model }) => JSON.stringify([id, created, object, model])));
    expect(ids.size).toBe(1);
    expect(chunks[0]!.choices).toEqual([
      { index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
    ]);
    const texts = chunks.slice(1, -2).map(({ choices }) => choices[0]!.delta.content);
    expect(texts.length).toBeGreaterThan(3);
    expect(texts.join('')).toBe('Hello, how are you?');
    expect(chunks.at(-2)!.choices).toEqual([
      { index: 0, delta: {}, logprobs: null, finish_reason: 'stop', stop_reason: null },
    ]);
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: texts.length + 1 } });
    expect(
      chunks.slice(0, -1).every((chunk) => chunk.choices[0]!.finish_reason !== undefined && !('usage' in chunk)),
    ).toBe(true);
  });

  it('has usage in every chunk where that is asked', async () => {
    const server = await serverOf(PLAIN, () => 'Hello');
    const chunks = await streamed(server, { stream_options: { continuous_usage_stats: true } });
    expect(chunks.slice(1).map(({ usage }) => usage.completion_tokens)).toEqual(expect.arrayContaining([1]));
  });

  it('has a choice for each that is asked, each with its index', async () => {
    const server = await serverOf(PLAIN, (_, choice) => `Answer ${'x'.repeat(choice)}`);
    const { body } = await post(server, { n: 3 });
    expect(body.choices.map(({ index, message }) => [index, message.content])).toEqual([
      ...[
        [0, 'Answer '],
        [1, 'Answer x'],
        [2, 'Answer xx'],
      ],
    ]);
    const texts = ['', '', ''];
    for (const { choices } of await streamed(server, { n: 3 }))
      for (const { index, delta } of choices) texts[index] += delta.content ?? '';
    expect(texts).toEqual(['Answer ', 'Answer x', 'Answer xx']);
    expect(server.submitted[0]).toMatchObject({ n: 3 });
  });

  it('ends with length where it is cut, and the longest there can be is the rest of the context', async () => {
    const server = await serverOf(PLAIN, () => ({ answer: 'Hello there', reason: 'length' }));
    expect((await post(server, { max_tokens: 9, max_completion_tokens: 5 })).body.choices[0]!.finish_reason).toBe(
      'length',
    );
    await post(server, {});
    const [cut, rest] = server.submitted;
    expect(cut!.maxNewTokens).toBe(5);
    expect(rest!.maxNewTokens).toBe(400 - rest!.prompt.length);
  });

  it('ends at a stop text, of which nothing is shown', async () => {
    const server = await serverOf(PLAIN, () => 'One two STOP three');
    const { body } = await post(server, { stop: ['STOP'] });
    expect(body.choices[0]!).toMatchObject({
      message: { content: 'One two ' },
      finish_reason: 'stop',
      stop_reason: 'STOP',
    });
    const chunks = await streamed(server, { stop: 'STOP' });
    expect(chunks.map(({ choices }) => choices[0]!.delta.content ?? '').join('')).toBe('One two ');
    expect(chunks.filter(({ choices }) => choices[0]!.finish_reason !== null)).toHaveLength(1);
  });

  it('has log-probabilities with the bytes of half characters, and null where no token came', async () => {
    const emoji = [...Buffer.from('😀')];
    const server = await serverOf(PLAIN, () => 'a😀b');
    const { body } = await post(server, { logprobs: true, top_logprobs: 2 });
    const entries = body.choices[0]!.logprobs!.content;
    expect(body.choices[0]!.logprobs!.refusal).toBe(null);
    expect(entries.flatMap(({ bytes }) => bytes as number[]).slice(0, 6)).toEqual([97, ...emoji, 98]);
    expect(entries.every(({ top_logprobs: top, logprob }) => top.length === 2 && top[0]!.logprob === logprob)).toBe(
      true,
    );
    expect(entries.some(({ token }) => String(token).startsWith('bytes:'))).toBe(true);
    const chunks = await streamed(server, { logprobs: true });
    const own = chunks.flatMap(({ choices }) => (choices[0]!.logprobs === null ? [] : [choices[0]!.logprobs.content]));
    expect(own.every((content) => content.length > 0)).toBe(true);
    expect(own.flat()).toEqual(entries.map((entry) => ({ ...entry, top_logprobs: [] })));
    expect([chunks[0]!, chunks.at(-1)!].map(({ choices }) => choices[0]!.logprobs)).toEqual([null, null]);
  });

  it('goes on with the last message, and repeats it where that is asked', async () => {
    const server = await serverOf(PLAIN, () => ' Paris.');
    const messages = [...USER, { role: 'assistant', content: 'The capital is' }];
    const asked = { messages, continue_final_message: true, add_generation_prompt: false };
    expect((await post(server, { ...asked, echo: true })).body.choices[0]!.message.content).toBe(
      'The capital is Paris.',
    );
    const chunks = await streamed(server, { ...asked, echo: true });
    expect(chunks.map(({ choices }) => choices[0]!.delta.content ?? '').join('')).toBe('The capital is Paris.');
    expect((await post(server, asked)).body.choices[0]!.message.content).toBe(' Paris.');
    const decoder = server.served.model.texts.detokenizer;
    expect(decoder.decode(server.submitted[0]!.prompt)).toBe('<|user|>Hi\n<|assistant|>The capital is');
  });

  it('fails as an error over HTTP before the first chunk, and as an event behind it', async () => {
    const error = Object.assign(new Error('x'), { name: 'NonFiniteError' });
    const server = await serverOf(PLAIN, () => ({ answer: '', error }));
    const { status, body } = await post(server, {});
    expect([status, body.error.message]).toEqual([500, expect.stringContaining('NaN or infinite')]);
    server.script = () => ({ answer: 'Hello', error });
    const chunks = await streamed(server, {});
    expect(chunks.at(-1)!.error).toMatchObject({ message: expect.stringContaining('NaN or infinite') });
  });

  it('is given up where its client goes', async () => {
    const server = await serverOf(PLAIN, () => ({ answer: 'Hello', isEndless: true }));
    for (const stream of [true, false]) {
      const before = server.cancelled.count;
      const gone = new AbortController();
      const response = fetch(`${server.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ messages: USER, stream }),
        signal: gone.signal,
      });
      response.catch(() => undefined);
      await expect.poll(() => server.submitted.length).toBe(stream ? 1 : 2);
      gone.abort();
      await expect.poll(() => server.cancelled.count).toBe(before + 1);
    }
  });
});

describe('an answer that is expected', () => {
  const EXPECTED = { type: 'content', content: 'Hello, how are you?' };

  it('says in its usage how much of it came, and is asked for with its tokens', async () => {
    const server = await serverOf(PLAIN, () => 'Hello, how are you?');
    const { body } = await post(server, { prediction: EXPECTED });
    const [{ prediction }] = server.submitted as [Submitted];
    expect(body.usage).toEqual({
      ...{ prompt_tokens: expect.any(Number), completion_tokens: prediction!.length + 1 },
      ...{ total_tokens: expect.any(Number), prompt_tokens_details: { cached_tokens: 3 } },
      completion_tokens_details: { accepted_prediction_tokens: prediction!.length, rejected_prediction_tokens: 0 },
    });
    const chunks = await streamed(server, { prediction: EXPECTED, stream_options: { include_usage: true } });
    expect(chunks.at(-1)!.usage).toEqual(body.usage);
    server.script = (_, choice) => (choice === 0 ? 'Hello, how are you?' : 'No.');
    const { completion_tokens_details: of } = (await post(server, { prediction: EXPECTED, n: 2 })).body.usage;
    expect(of).toEqual({
      accepted_prediction_tokens: prediction!.length,
      rejected_prediction_tokens: prediction!.length,
    });
  });

  it('may be in parts, and stands beside thoughts', async () => {
    const server = await serverOf(HERMES, () => '<think>\nHm.\n</think>\n\nHello, how are you?');
    const content = ['Hello, how', ' are you?'].map((text) => ({ type: 'text', text }));
    const { body } = await post(server, { prediction: { ...EXPECTED, content } });
    const { reasoning_tokens: thoughts, ...of } = body.usage.completion_tokens_details;
    expect(thoughts).toBeGreaterThan(1);
    expect(of).toEqual({
      accepted_prediction_tokens: server.submitted[0]!.prediction!.length,
      rejected_prediction_tokens: 0,
    });
  });

  it.each([
    ['x', 'expected an object with the type "content"'],
    [{ content: 'x' }, 'expected an object with the type "content"'],
    [{ type: 'content' }, 'prediction.content: expected a text, or a list of parts'],
    [{ type: 'content', content: [{ type: 'image_url' }] }, 'the model takes texts alone'],
    [{ type: 'content', content: 'a b'.repeat(4000) }, "tokens: the model's texts have at most"],
  ])('is refused in one line where it is none: %j', async (prediction, message) => {
    const server = await serverOf(PLAIN, () => 'Hello');
    const { status, body } = await post(server, { prediction });
    expect([status, body.error['message']]).toEqual([400, expect.stringContaining(message)]);
  });
});

describe('thoughts', () => {
  const THOUGHT = '<think>\nHm, two.\n</think>\n\nTwo.';

  it('come beside the content under both names', async () => {
    const server = await serverOf(HERMES, () => THOUGHT);
    const { body } = await post(server, {});
    expect(body.choices[0]!.message).toEqual({
      ...{ role: 'assistant', content: 'Two.', refusal: null },
      ...{ reasoning: 'Hm, two.', reasoning_content: 'Hm, two.' },
    });
    const { completion_tokens: all, completion_tokens_details: details } = body.usage;
    expect(details.reasoning_tokens).toBeGreaterThan(3);
    expect(details.reasoning_tokens).toBeLessThan(all);
    const chunks = await streamed(server, { stream_options: { include_usage: true } });
    const joined = (field: 'content' | 'reasoning' | 'reasoning_content'): string =>
      chunks.map(({ choices }) => choices[0]?.delta[field] ?? '').join('');
    expect([joined('reasoning_content'), joined('reasoning'), joined('content')]).toEqual([
      'Hm, two.',
      'Hm, two.',
      'Two.',
    ]);
    expect(chunks.at(-1)!.usage).toEqual(body.usage);
  });

  it('are told by their special tokens, which texts leave out', async () => {
    const special = ['<think>', '</think>', '<|im_start|>', '<|im_end|>'];
    const server = await serverOf(HERMES, () => THOUGHT + '<|im_end|>', special);
    expect((await post(server, {})).body.choices[0]!.message).toMatchObject({
      reasoning: 'Hm, two.',
      content: 'Two.',
    });
  });

  it('may be opened by the template, and be left out', async () => {
    const server = await serverOf(OPENED, () => 'Hm.</think>Two.');
    expect((await post(server, {})).body.choices[0]!.message).toMatchObject({ reasoning: 'Hm.', content: 'Two.' });
    const without = (await post(server, { include_reasoning: false })).body.choices[0]!.message;
    expect(without).toMatchObject({ reasoning: null, content: 'Two.' });
  });

  it('are none where they are turned off', async () => {
    const server = await serverOf(HERMES, () => 'Two. <think>no</think>');
    const { body } = await post(server, { chat_template_kwargs: { enable_thinking: false } });
    expect(body.choices[0]!.message).toMatchObject({ reasoning: null, content: 'Two. <think>no</think>' });
    expect(body.usage.completion_tokens_details).toEqual({ reasoning_tokens: 0 });
  });

  it('come before a text that is asked for in a form', async () => {
    const server = await serverOf(HERMES, () => '{}');
    const format = { response_format: { type: 'json_object' } };
    await post(server, format);
    await post(server, { ...format, chat_template_kwargs: { enable_thinking: false } });
    const opened = await serverOf(OPENED, () => 'Hm.</think>{}');
    await post(opened, format);
    const thoughts = [
      { kind: 'until', text: '</think>' },
      { kind: 'repeat', of: { kind: 'text', text: '\n' }, min: 0, max: 2 },
      { kind: 'json' },
    ];
    expect(opened.submitted[0]!.grammar).toEqual({ kind: 'sequence', of: thoughts });
    expect(server.submitted.map(({ grammar }) => grammar)).toEqual([
      {
        kind: 'choice',
        of: [{ kind: 'sequence', of: [{ kind: 'text', text: '<think>' }, ...thoughts] }, { kind: 'json' }],
      },
      { kind: 'json' },
    ]);
  });
});

describe('calls of tools', () => {
  const CALL = 'One moment.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 😀"}}\n</tool_call>';

  it('are read from the answer', async () => {
    const server = await serverOf(HERMES, () => CALL);
    const { body } = await post(server, { tools: TOOLS, seed: 3 });
    const call = {
      id: expect.stringMatching(/^call_[0-9a-f]{24}$/),
      type: 'function',
      function: { name: 'get_weather', arguments: '{"city": "Zürich 😀"}' },
    };
    expect(body.choices[0]!).toMatchObject({
      message: { content: 'One moment.', tool_calls: [call] },
      finish_reason: 'tool_calls',
    });
    const again = await post(server, { tools: TOOLS, seed: 3 });
    expect(again.body.choices).toEqual(body.choices);
    const other = await post(server, { tools: TOOLS, seed: 4 });
    expect(other.body.choices[0]!.message.tool_calls![0]!.id).not.toBe(body.choices[0]!.message.tool_calls![0]!.id);
  });

  it('are streamed: a name first, then pieces of arguments', async () => {
    const server = await serverOf(HERMES, () => CALL.repeat(2));
    const chunks = await streamed(server, { tools: TOOLS });
    const deltas = chunks.flatMap(({ choices }) => choices[0]!.delta.tool_calls ?? []);
    expect(
      deltas.filter(({ id }) => id !== undefined).map(({ index, type, function: f }) => [index, type, f.name]),
    ).toEqual([
      [0, 'function', 'get_weather'],
      [1, 'function', 'get_weather'],
    ]);
    for (const index of [0, 1]) {
      const pieces = deltas.filter((delta) => delta.index === index);
      expect(pieces.length).toBeGreaterThan(2);
      expect(pieces.slice(1).every((delta) => Object.keys(delta).join() === 'index,function')).toBe(true);
      expect(pieces.map((delta) => delta.function.arguments).join('')).toBe('{"city": "Zürich 😀"}');
    }
    expect(new Set(deltas.flatMap(({ id }) => id ?? [])).size).toBe(2);
    expect(chunks.at(-1)!.choices[0]!.finish_reason).toBe('tool_calls');
  });

  it('are one where only one is wanted', async () => {
    const server = await serverOf(HERMES, () => CALL.repeat(2));
    const { body } = await post(server, { tools: TOOLS, parallel_tool_calls: false });
    expect(body.choices[0]!.message.tool_calls).toHaveLength(1);
  });

  it('keep the reason length where they are cut', async () => {
    const server = await serverOf(HERMES, () => ({ answer: CALL.slice(0, 70), reason: 'length' }));
    const { body } = await post(server, { tools: TOOLS });
    expect(body.choices[0]!).toMatchObject({ finish_reason: 'length', message: { tool_calls: [{}] } });
  });

  it('are content where none are looked for', async () => {
    const server = await serverOf(HERMES, () => CALL);
    for (const body of [{}, { tools: TOOLS, tool_choice: 'none' }]) {
      const { message, finish_reason: reason } = (await post(server, body)).body.choices[0]!;
      expect([message.content, message.tool_calls, reason]).toEqual([CALL, undefined, 'stop']);
    }
  });

  it.each([
    ['Llama 3', LLAMA, '<|python_tag|>{"name": "now", "parameters": {}}', /^call_/],
    ['Mistral', MISTRAL, '[TOOL_CALLS][{"name": "now", "arguments": {}}]', /^[0-9a-f]{9}$/],
    ['newer Mistral', `${MISTRAL}{# [ARGS] #}`, '[TOOL_CALLS]now[ARGS]{}', /^[0-9a-f]{9}$/],
  ])('are read as %s writes them, special tokens among them', async (_, template, answer, id) => {
    const special = ['<|python_tag|>', '[TOOL_CALLS]', '[ARGS]', '<tool_call>'];
    const server = await serverOf(template, () => answer, special);
    const { message, finish_reason: reason } = (await post(server, { tools: TOOLS })).body.choices[0]!;
    expect(message).toMatchObject({
      content: null,
      tool_calls: [{ id: expect.stringMatching(id), function: { name: 'now', arguments: '{}' } }],
    });
    expect(reason).toBe('tool_calls');
  });

  it('are asked for by a grammar where they are required', async () => {
    const server = await serverOf(HERMES, () => '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>');
    const off = { tools: TOOLS, chat_template_kwargs: { enable_thinking: false } };
    const required = await post(server, { ...off, tool_choice: 'required', parallel_tool_calls: false });
    expect(required.body.choices[0]!.finish_reason).toBe('tool_calls');
    const named = await post(server, { ...off, tool_choice: { type: 'function', function: { name: 'now' } } });
    expect(named.body.choices[0]!).toMatchObject({ finish_reason: 'stop', message: { tool_calls: [{}] } });
    const text = (each: string): Json => ({ kind: 'text', text: each });
    const call = (name: string, schema: unknown): Json => ({
      kind: 'sequence',
      of: [text(`{"name": "${name}", "arguments": `), { kind: 'schema', schema }, text('}')],
    });
    const now = call('now', { type: 'object', properties: {}, additionalProperties: false });
    const around = (each: Json): Json => ({
      kind: 'sequence',
      of: [text('<tool_call>'), text('\n'), each, text('\n'), text('</tool_call>')],
    });
    expect(server.submitted.map(({ grammar }) => grammar)).toEqual([
      around({ kind: 'choice', of: [call('get_weather', WEATHER), now] }),
      around(now),
    ]);
  });

  it('may be required of any model, and are refused where the way of its calls is not known', async () => {
    const server = await serverOf(PLAIN, () => '{"name": "now", "arguments": {}}');
    const { body } = await post(server, { tools: TOOLS, tool_choice: 'required' });
    expect(body.choices[0]!.message.tool_calls).toMatchObject([{ function: { name: 'now', arguments: '{}' } }]);
    const { status, body: refused } = await post(server, { tools: TOOLS });
    expect([status, refused.error.message]).toEqual([400, expect.stringContaining('--tool-call-parser')]);
  });
});
