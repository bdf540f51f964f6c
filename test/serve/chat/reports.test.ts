/** What users of other servers reported of chats: each is a case here. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { chatFolder, scriptedServer } from './scripted.js';
import { HERMES, PLAIN } from './templates.js';
import { closeServers, post, serverOf, streamed, USER } from './wire.js';

afterAll(closeServers);

const contentOf = (chunks: Awaited<ReturnType<typeof streamed>>): string =>
  chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');

describe('an answer', () => {
  it('shows an emoji of several tokens once it is complete, and no half of it', async () => {
    const server = await serverOf(PLAIN, () => 'a😀👩‍👩‍👧é');
    const chunks = await streamed(server, {});
    expect(contentOf(chunks)).toBe('a😀👩‍👩‍👧é');
    for (const { choices } of chunks) expect(choices[0]!.delta.content ?? '').not.toContain('\uFFFD');
  });

  it('goes on behind bytes that are no character', async () => {
    const server = await serverOf(PLAIN, () => 'a😀b');
    const [tokens] = await server.served.model.texts.encode(['a😀b'], false);
    const { detokenizer } = server.served.model.texts;
    const half = tokens!.findIndex((id) => detokenizer.bytesOf(id)[0] === 0xf0);
    expect(half).toBeGreaterThanOrEqual(0);
    const broken = [...tokens!.slice(0, half + 1), tokens!.at(-1)!];
    server.script = () => ({ answer: broken });
    expect(contentOf(await streamed(server, {}))).toBe('a\uFFFDb');
    expect((await post(server, {})).body.choices[0]!.message.content).toBe('a\uFFFDb');
  });

  it('has stop texts that begin in one token and end in another, or in the middle of one', async () => {
    const server = await serverOf(PLAIN, () => 'One, two, three, four');
    for (const [stop, text] of [
      [', th', 'One, two'],
      ['hree', 'One, two, t'],
      ['two, three', 'One, '],
      ['One', ''],
    ]) {
      expect((await post(server, { stop })).body.choices[0]!.message.content).toBe(text);
      expect(contentOf(await streamed(server, { stop }))).toBe(text);
    }
  });

  it('has whole marks where a stop text begins like one', async () => {
    const special = ['<think>', '</think>'];
    const server = await serverOf(HERMES, () => '<think>Hm.</think>Two.', special);
    const stop = ['</thing>', 'nk>Two.', 'Hm.<'];
    expect((await post(server, { stop: stop.slice(0, 1) })).body.choices[0]!.message).toMatchObject({
      ...{ reasoning: 'Hm.', content: 'Two.' },
    });
    const chunks = await streamed(server, { stop: stop.slice(0, 1) });
    expect(chunks.map(({ choices }) => choices[0]!.delta.reasoning ?? '').join('')).toBe('Hm.');
    expect(contentOf(chunks)).toBe('Two.');
  });

  it('counts the prompt once, and tokens of all choices', async () => {
    const server = await serverOf(PLAIN, (_, choice) => 'word '.repeat(choice + 1));
    const one = (await post(server, {})).body.usage;
    const three = (await post(server, { n: 3 })).body.usage;
    expect(three.prompt_tokens).toBe(one.prompt_tokens);
    expect(three.completion_tokens).toBeGreaterThan(2 * one.completion_tokens);
    const chunks = await streamed(server, { n: 3, stream_options: { include_usage: true } });
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: three });
    expect(chunks.filter((chunk) => chunk.choices.length === 0)).toHaveLength(1);
  });

  it('is drawn with temperature 1 and another seed each time, whatever generation_config.json says', async () => {
    const folder = chatFolder(PLAIN);
    writeFileSync(
      join(folder, 'generation_config.json'),
      JSON.stringify({ temperature: 0.1, top_k: 5, do_sample: true }),
    );
    const server = await scriptedServer(folder, () => 'x');
    try {
      const seeds = [await post(server, {}), await post(server, {})].map(({ body }) => body.seed);
      expect(new Set(seeds).size).toBe(2);
      const [{ sampling } = {}] = server.submitted;
      expect(sampling).toMatchObject({ temperature: 1, seed: seeds[0] });
      expect([sampling?.topK, sampling?.topP]).toEqual([undefined, undefined]);
    } finally {
      await server.close();
    }
  });
});

describe('a prompt', () => {
  it('begins with BOS once where the template writes it', async () => {
    const folder = chatFolder(`{{ bos_token }}${PLAIN}`);
    writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ bos_token: '<s>', add_bos_token: true }));
    const server = await scriptedServer(folder, () => 'x');
    try {
      await post(server, {});
      const bos = server.submitted[0]!.prompt[0];
      const { detokenizer } = server.served.model.texts;
      expect(detokenizer.specialText(bos!)).toBe('<s>');
      expect(server.submitted[0]!.prompt.filter((id) => id === bos)).toHaveLength(1);
    } finally {
      await server.close();
    }
  });

  it('may say what begins or ends turns: that is read as such, as servers of this kind do', async () => {
    const server = await serverOf(HERMES, () => 'x', ['<|im_end|>']);
    await post(server, { messages: [{ role: 'user', content: 'Hi<|im_end|>' }] });
    const { detokenizer } = server.served.model.texts;
    const ends = server.submitted[0]!.prompt.filter((id) => detokenizer.specialText(id) === '<|im_end|>');
    expect(ends).toHaveLength(2);
  });

  it('is not blocked by variables that hide those of the conversation', async () => {
    const server = await serverOf(PLAIN, () => 'x');
    for (const name of ['messages', 'tools', 'documents', 'add_generation_prompt', 'tokenize', 'chat_template']) {
      const { status } = await post(server, { chat_template_kwargs: { [name]: [] } });
      expect([name, status]).toEqual([name, 400]);
    }
    expect((await post(server, { messages: USER, chat_template_kwargs: { own: 1 } })).status).toBe(200);
  });
});
