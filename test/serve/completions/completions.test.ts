/** /v1/completions: what is in an answer, whole and streamed, of a model whose every token is known. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedModel } from '../../support/scriptedModel.js';
import { type Served, servedModels } from '../../support/servedModels.js';
import { characters } from '../../../serve/tokenTexts.js';
import { chunks, complete, joined, post, refused } from './client.js';

const EOS = 2;

let served: Served;
let url: string;
/** Ids of pieces, and their bytes. */
let ids: ReadonlyMap<string, number>;

const MELON = [0xf0, 0x9f, 0x8d, 0x89];
const byteToken = (byte: number): number => ids.get(String.fromCharCode(byte)) ?? -1;

/** After `a`: b c d … z, then the end; a digit repeats; `@` begins an emoji in four tokens; `#` has an odd byte. */
function next(token: number): number {
  const byte = bytes.get(token);
  if (byte === undefined) return EOS;
  const char = String.fromCharCode(byte);
  if (char >= '0' && char <= '9') return token;
  if (char === 'z' || char === '~') return EOS;
  if (char >= 'a' && char < 'z') return byteToken(byte + 1);
  if (char === '@') return byteToken(MELON[0]!);
  if (char === '$') return 3;
  const at = MELON.indexOf(byte);
  if (at >= 0) return at < 3 ? byteToken(MELON[at + 1]!) : byteToken(0x7e);
  return char === '#' ? byteToken(0xff) : byteToken(0x7e);
}

const bytes = new Map<number, number>();

beforeAll(async () => {
  served = servedModels({
    device: scriptedModel({
      next,
      fails: new Set([3]),
      logProb: (token, target) => (token === target && token === 4 ? -Infinity : target === next(token) ? -0.5 : -2.25),
    }),
  });
  const found = new Map<string, number>();
  const { detokenizer } = served.model.texts;
  for (let id = 3; id < 259; id++) {
    const own = detokenizer.bytesOf(id);
    found.set(String.fromCharCode(own[0]!), id);
    bytes.set(id, own[0]!);
  }
  ids = found;
  ({ url } = await served.listen());
});
afterAll(() => served.close());

const tokensOf = (text: string): readonly number[] => Array.from(Buffer.from(text), byteToken);

describe('completions', () => {
  it('take prompts in four forms, and number choices by prompt and sample', async () => {
    const a = tokensOf('a');
    const one = await complete(url, { prompt: a, max_tokens: 3 });
    expect(one).toMatchObject({
      object: 'text_completion',
      model: 'demo',
      system_fingerprint: 'made-up',
      seed: expect.any(Number),
      choices: [{ index: 0, text: 'bcd', logprobs: null, finish_reason: 'length', stop_reason: null }],
      usage: { prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 },
    });
    expect(one.id).toMatch(/^cmpl-/);
    const text = await complete(url, { prompt: 'a', max_tokens: 3, add_special_tokens: false, model: 'demo' });
    expect(text.usage!.completion_tokens).toBe(3);
    const several = await complete(url, { prompt: [a, tokensOf('x')], max_tokens: 5, n: 2, temperature: 0 });
    expect(several.choices.map(({ index, text: own }) => [index, own])).toEqual([
      [0, 'bcdef'],
      [1, 'bcdef'],
      [2, 'yz'],
      [3, 'yz'],
    ]);
    // The end token counts; prompts count once.
    expect(several.usage).toMatchObject({ prompt_tokens: 2, completion_tokens: 16, total_tokens: 18 });
    const texts = await complete(url, { prompt: ['A cat', 'a dog'], max_tokens: 1 });
    expect(texts.choices.length).toBe(2);
  });

  it('write 16 tokens unless told otherwise, and fewer where the context ends', async () => {
    const zero = tokensOf('0');
    const sixteen = await complete(url, { prompt: zero, max_tokens: null });
    expect(sixteen.choices[0]).toMatchObject({ text: '0'.repeat(16), finish_reason: 'length' });
    const few = await complete(url, { prompt: Array.from({ length: 395 }, () => zero[0]) });
    expect(few.choices[0]!.text).toBe('00000');
    const none = await complete(url, { prompt: zero, max_tokens: 0 });
    expect(none).toMatchObject({ choices: [{ text: '', finish_reason: 'length' }], usage: { completion_tokens: 0 } });
  });

  it.each([true, false])(
    'echo the prompt with log-probabilities, the first of them null (stream: %s)',
    async (streams) => {
      const asked = { prompt: tokensOf('ab9'), max_tokens: 1, echo: true, logprobs: 1, temperature: 0 };
      const [choice] = streams ? joined(await chunks(url, asked)) : (await complete(url, asked)).choices;
      expect(choice).toMatchObject({ text: 'ab99', finish_reason: 'length' });
      expect(choice!.logprobs).toEqual({
        tokens: ['a', 'b', '9', '9'],
        token_logprobs: [null, -0.5, -2.25, -0.5],
        top_logprobs: [null, { b: -0.5 }, { c: -0.5, 9: -2.25 }, { 9: -0.5 }],
        text_offset: [0, 1, 2, 3],
      });
    },
  );

  it('have prompt + 1 entries where the new token ends the text', async () => {
    const { choices } = await complete(url, {
      ...{ model: 'demo', prompt: [tokensOf('yz'), tokensOf('ab')], temperature: 0 },
      ...{ max_tokens: 1, logprobs: 1, seed: 1234, echo: true },
    });
    expect(choices.map(({ text, finish_reason: reason }) => [text, reason])).toEqual([
      ['yz', 'stop'],
      ['abc', 'length'],
    ]);
    expect(choices[0]!.logprobs).toMatchObject({
      tokens: ['y', 'z', '</s>'],
      token_logprobs: [null, -0.5, -0.5],
      text_offset: [0, 1, 2],
    });
  });

  it('score a prompt alone', async () => {
    const { choices, usage } = await complete(url, {
      prompt: tokensOf('abz'),
      max_tokens: 0,
      echo: true,
      logprobs: 0,
      n: 2,
    });
    expect(choices.map(({ text }) => text)).toEqual(['abz', 'abz']);
    expect(choices[1]!.logprobs).toMatchObject({
      token_logprobs: [null, -0.5, -2.25],
      top_logprobs: [null, { b: -0.5 }, { z: -2.25 }],
    });
    expect(usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 0 });
  });

  it('end the prompt of a stream with the first chunk, and nothing is offset twice', async () => {
    const asked = { prompt: [1, ...tokensOf('xy')], echo: true, logprobs: 0, max_tokens: 4, temperature: 0 };
    const all = await chunks(url, asked);
    expect(all[0]!.choices[0]!.text).toBe('xyz');
    expect(all.map(({ choices }) => choices[0]!.finish_reason)).toEqual([null, null, 'stop']);
    expect(all.map(({ choices }) => choices[0]!.logprobs?.text_offset ?? null)).toEqual([[0, 0, 1, 2], [3], null]);
    expect(joined(all)).toEqual((await complete(url, asked)).choices);
  });

  it('keep characters whole that several tokens make, and name halves by their bytes', async () => {
    const asked = { prompt: tokensOf('@'), logprobs: 1, temperature: 0, max_tokens: 10 };
    const whole = (await complete(url, asked)).choices[0]!;
    expect(whole.text).toBe('🍉~');
    expect(whole.logprobs!.tokens).toEqual(['bytes:\\xf0', 'bytes:\\x9f', 'bytes:\\x8d', 'bytes:\\x89', '~', '</s>']);
    // Characters, not UTF-16 units.
    expect(whole.logprobs!.text_offset).toEqual([0, 0, 0, 0, 1, 2]);
    expect(joined(await chunks(url, asked))).toEqual([whole]);
    const plain = await chunks(url, { prompt: tokensOf('@'), temperature: 0, max_tokens: 10 });
    expect(plain.map(({ choices }) => choices[0]!.text)).toEqual(['🍉', '~', '']);
    // A byte that is none of a character does not hold the stream up; a cut one is shown as such.
    expect((await complete(url, { prompt: tokensOf('#'), temperature: 0 })).choices[0]!.text).toBe('\uFFFD~');
    expect((await complete(url, { prompt: tokensOf('@'), max_tokens: 2 })).choices[0]!.text).toBe('\uFFFD');
    // In an echo the prompt's half goes on.
    const half = [...tokensOf('@'), ...MELON.slice(0, 2).map(byteToken)];
    const echoed = await complete(url, { prompt: half, echo: true, logprobs: 0, max_tokens: 3 });
    expect(echoed.choices[0]).toMatchObject({ text: '@🍉~', logprobs: { text_offset: [0, 1, 1, 1, 1, 2] } });
    expect(characters('a🍉b')).toBe(3);
  });

  it.each([true, false])(
    'end at stop texts, over the borders of tokens and within them (stream: %s)',
    async (streams) => {
      const ask = async (more: object) => {
        const asked = { prompt: tokensOf('a'), max_tokens: 10, temperature: 0, ...more };
        const [choice] = streams ? joined(await chunks(url, asked)) : (await complete(url, asked)).choices;
        const { text, finish_reason: reason, stop_reason: by } = choice!;
        return [text, reason, by];
      };
      expect(await ask({ stop: 'def' })).toEqual(['bc', 'stop', 'def']);
      expect(await ask({ stop: ['xyz', 'de'] })).toEqual(['bc', 'stop', 'de']);
      expect(await ask({ stop: 'de', include_stop_str_in_output: true })).toEqual(['bcde', 'stop', 'de']);
      // What may have been the start of a stop text is shown at last.
      expect(await ask({ stop: 'klm' })).toEqual(['bcdefghijk', 'length', null]);
      expect(await ask({ stop: 'bc', min_tokens: 3, ignore_eos: true })).toEqual(['bcdefghijk', 'length', null]);
      const d = byteToken(0x64);
      expect(await ask({ stop_token_ids: [d] })).toEqual(['bc', 'stop', d]);
      expect(await ask({ stop_token_ids: [d], include_stop_str_in_output: true, stop: 'cx' })).toEqual([
        'bcd',
        'stop',
        d,
      ]);
      // A special token is not cut in two, though a stop text may begin in it.
      const shown = { prompt: tokensOf('x'), skip_special_tokens: false, ignore_eos: true, max_tokens: 3 };
      expect(await ask({ ...shown, stop: 's>!' })).toEqual(['yz</s>', 'length', null]);
      expect(await ask({ prompt: tokensOf('x') })).toEqual(['yz', 'stop', null]);
      expect(await ask({ prompt: tokensOf('x'), ignore_eos: true, max_tokens: 4 })).toEqual(['yz', 'length', null]);
      expect(await ask({ prompt: tokensOf('x'), skip_special_tokens: false, ignore_eos: true, max_tokens: 3 })).toEqual(
        ['yz</s>', 'length', null],
      );
    },
  );

  it('write −∞ as −9999, and tokens as their numbers where that is asked for', async () => {
    const asked = { prompt: [4, 4], echo: true, logprobs: 1, max_tokens: 0 };
    const { choices } = await complete(url, asked);
    expect(choices[0]!.logprobs!.token_logprobs).toEqual([null, -9999]);
    const named = await complete(url, { ...asked, return_tokens_as_token_ids: true, return_token_ids: true });
    expect(named.choices[0]).toMatchObject({
      logprobs: { tokens: ['token_id:4', 'token_id:4'] },
      token_ids: [],
      prompt_token_ids: [4, 4],
    });
    const ends = { prompt: tokensOf('x'), return_token_ids: true, temperature: 0 };
    const whole = (await complete(url, ends)).choices[0]!;
    expect(whole.token_ids).toEqual([...tokensOf('yz'), EOS]);
    expect(joined(await chunks(url, ends))).toEqual([whole]);
  });

  it('tell what was used: once at the end, with every chunk, or not', async () => {
    const asked = { prompt: [tokensOf('a'), tokensOf('x')], n: 2, max_tokens: 3, temperature: 0 };
    const plain = await chunks(url, asked);
    expect(plain.some((chunk) => 'usage' in chunk)).toBe(false);
    expect(new Set(plain.map(({ id, created }) => `${id} ${created}`)).size).toBe(1);
    const ended = await chunks(url, { ...asked, stream_options: { include_usage: true } });
    const usage = { prompt_tokens: 2, completion_tokens: 12, total_tokens: 14 };
    expect(ended.at(-1)).toMatchObject({ choices: [], usage });
    expect(ended.slice(0, -1).every(({ choices, usage: own }) => choices.length === 1 && own === undefined)).toBe(true);
    const always = await chunks(url, {
      ...{ prompt: tokensOf('a'), max_tokens: 3, temperature: 0 },
      stream_options: { include_usage: true, continuous_usage_stats: true },
    });
    expect(always.map(({ usage: own }) => own?.completion_tokens)).toEqual([1, 2, 3, 3, 3]);
  });

  it('fail alone where a value is not finite', async () => {
    const asked = { prompt: [[3, 5], tokensOf('a')], max_tokens: 2 };
    const [failed, other] = await Promise.all([
      refused(url, { prompt: [...tokensOf('a'), 3], max_tokens: 2 }),
      complete(url, { prompt: tokensOf('ab'), max_tokens: 5, temperature: 0 }),
    ]);
    expect(failed).toMatchObject({ status: 500, message: expect.stringContaining('NaN') });
    expect(failed.headers.get('x-should-retry')).toBe('false');
    expect(other.choices[0]!.text).toBe('cdefg');
    expect((await refused(url, { ...asked, echo: true, logprobs: 0 })).status).toBe(500);
    await expect(chunks(url, { ...asked, echo: true, logprobs: 0 })).rejects.toThrow('500');
  });

  it('tell of an error behind the first chunk by an event, and end', async () => {
    const response = await post(url, '/v1/completions', { prompt: tokensOf('$'), temperature: 0, stream: true });
    expect(response.status).toBe(200);
    const events = (await response.text()).trim().split('\n\n');
    expect(events.length).toBe(3);
    expect(events[0]).toContain('"text":"!"');
    expect(JSON.parse(events[1]!.slice('data: '.length))).toMatchObject({
      error: { type: 'server_error', message: expect.stringContaining('NaN') },
    });
    expect(events[2]).toBe('data: [DONE]');
  });

  it.each([
    [{ prompt: undefined }, 400, 'prompt: expected a text'],
    [{ prompt: [] }, 400, 'prompt: expected a text'],
    [{ prompt: [[]] }, 400, 'prompt has no tokens'],
    [{ prompt: ['a', 5] }, 400, 'prompt[1]: expected a text'],
    [{ prompt: [[5], 'a'] }, 400, 'prompt[1]: expected a list of token ids'],
    [{ prompt: [5, 'a'] }, 400, 'prompt: expected token ids'],
    [{ prompt: [5, 4096] }, 400, 'prompt: there is no token 4096'],
    [{ prompt: [5, -1] }, 400, 'there is no token -1'],
    [{ prompt: [5, 1.5] }, 400, 'there is no token 1.5'],
    [{ prompt: '', add_special_tokens: false }, 400, 'prompt has no tokens'],
    [{ prompt: Array.from({ length: 2000 }, () => [5]) }, 400, 'prompt: expected at most 1024'],
    [{ prompt: Array.from({ length: 100 }, () => [5]), n: 100 }, 400, 'at most 1024 choices'],
    [{ model: 'other' }, 404, 'there is no model "other"'],
    [{ suffix: 'end' }, 400, 'suffix: '],
    [{ temperature: -1 }, 400, 'temperature: expected a number from 0'],
    [{ temperature: 'hot' }, 400, 'temperature: expected a number'],
    [{ top_p: 1.5 }, 400, 'top_p: '],
    [{ n: 0 }, 400, 'n: expected a whole number'],
    [{ n: 1e9 }, 400, 'n: expected a whole number'],
    [{ logprobs: 21 }, 400, 'logprobs: expected a whole number from 0 to 20'],
    [{ logprobs: true }, 400, 'logprobs: expected a whole number'],
    [{ best_of: 1, n: 2 }, 400, 'best_of: expected 2'],
    [{ best_of: 2, stream: true }, 400, 'best_of: not with stream'],
    [{ stream_options: { include_usage: true } }, 400, 'stream_options: only with stream'],
    [{ prompt_logprobs: 1, stream: true }, 400, 'prompt_logprobs: not with stream'],
    [{ stop: '' }, 400, 'stop: '],
    [{ stop: [1] }, 400, 'stop: '],
    [{ stop_token_ids: [5000] }, 400, 'stop_token_ids: there is no token 5000'],
    [{ logit_bias: { 5000: 1 } }, 400, 'logit_bias: there is no token 5000'],
    [{ logit_bias: { a: 1 } }, 400, 'logit_bias: expected token ids'],
    [{ logit_bias: { 5: 101 } }, 400, 'logit_bias.5: expected a number from -100 to 100'],
    [{ seed: 1.5 }, 400, 'seed: '],
    [{ allowed_token_ids: [] }, 400, 'allowed_token_ids: expected at least one token'],
    [{ allowed_token_ids: [4096] }, 400, 'allowed_token_ids: there is no token 4096'],
    [
      { prompt: Array.from({ length: 1000 }, () => [5]), logprobs: 20, max_tokens: 300 },
      400,
      'the answer may have 6300000 log-probabilities',
    ],
    [{ bad_words: ['x'] }, 400, 'bad_words is not supported'],
    [{ use_beam_search: true }, 400, 'use_beam_search is not supported'],
    [{ max_tokens: -1 }, 400, 'max_tokens: '],
  ])('refuse %j', async (body, status, message) => {
    const failed = await refused(url, { prompt: [5], ...body });
    expect(failed).toMatchObject({ status, message: expect.stringContaining(message) });
  });

  it('refuse what is longer than the context, and cut prompts where that is asked for', async () => {
    const long = Array.from({ length: 401 }, () => 5);
    const code = 'context_length_exceeded';
    expect(await refused(url, { prompt: long })).toMatchObject({ status: 400, code, param: 'prompt' });
    expect(await refused(url, { prompt: long.slice(1) })).toMatchObject({ status: 400, code, param: 'prompt' });
    const far = await refused(url, { prompt: [5], max_tokens: 400 });
    expect(far).toMatchObject({ status: 400, code, param: 'max_tokens' });
    expect(far.message).toContain('maximum context length is 400 tokens');
    expect((await complete(url, { prompt: long.slice(1), echo: true, max_tokens: 0 })).choices.length).toBe(1);
    const cut = await complete(url, { prompt: tokensOf('xab'), truncate_prompt_tokens: 2, echo: true, max_tokens: 1 });
    expect(cut.choices[0]!.text).toBe('abc');
    const most = { prompt: Array.from({ length: 395 }, () => 5), truncate_prompt_tokens: -1, max_tokens: 10 };
    expect((await complete(url, most)).usage!.prompt_tokens).toBe(390);
  });

  it('ignore fields that are not known, and take null for none', async () => {
    const body = {
      prompt: tokensOf('a'),
      store: true,
      user: 'x',
      suffix: null,
      stop: null,
      seed: null,
      logprobs: null,
      n: null,
    };
    expect((await complete(url, { ...body, max_tokens: 2, metadata: { a: 1 } })).choices[0]!.text).toBe('bc');
  });
});
