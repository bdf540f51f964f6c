/** Chat templates as built: in a thread of their own, with bounds. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type * as Built from '../../models/chat/template.js';
import { findChatTemplate } from '../../models/chat/template.js';

const MODULE = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'dist', 'models', 'chat', 'template.js');
const isBuilt = existsSync(MODULE);

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-chat-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const USER = [{ role: 'user', content: 'Hi' }];
const dict = (fields: Readonly<Record<string, string>>): Map<string, string> => new Map(Object.entries(fields));
const TURNS = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}{% endfor %}";

describe('a chat template', () => {
  it('is found in tokenizer_config.json or beside it', () => {
    const config = (value: unknown): void =>
      writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(value));
    expect(findChatTemplate(folder)).toBeUndefined();
    config({ bos_token: { content: '<s>' } });
    expect(findChatTemplate(folder)).toBeUndefined();
    config({ bos_token: { content: '<s>' }, eos_token: '</s>', chat_template: TURNS });
    const special = { bos_token: '<s>', eos_token: '</s>' };
    expect(findChatTemplate(folder)).toMatchObject({ text: TURNS, special });
    config({
      chat_template: [
        { name: 'tools', template: 'x' },
        { name: 'default', template: TURNS },
      ],
    });
    expect(findChatTemplate(folder)).toMatchObject({ text: TURNS });
    config({ chat_template: 7 });
    expect(() => findChatTemplate(folder)).toThrow('chat_template: expected a text');
    expect(() => findChatTemplate(folder, 'rag')).toThrow('no chat template is called "rag"');
    writeFileSync(join(folder, 'chat_template.jinja'), 'own');
    expect(findChatTemplate(folder)).toMatchObject({ text: 'own' });
    // Files of templates stand for all that the configuration lists.
    config({ chat_template: [{ name: 'rag', template: 'x' }] });
    expect(() => findChatTemplate(folder, 'rag')).toThrow('no chat template is called "rag"');
    rmSync(join(folder, 'chat_template.jinja'));
    expect(findChatTemplate(folder, 'rag')).toMatchObject({ text: 'x' });
    const ofProcessor = join(folder, 'chat_template.json');
    writeFileSync(ofProcessor, JSON.stringify({ chat_template: 'old' }));
    expect(findChatTemplate(folder)).toMatchObject({ text: 'x' });
    config({});
    expect(findChatTemplate(folder)).toMatchObject({ text: 'old', where: ofProcessor });
    writeFileSync(join(folder, 'special_tokens_map.json'), JSON.stringify({ bos_token: '<b>', eos_token: 7 }));
    expect(findChatTemplate(folder)?.special).toEqual({ bos_token: '<b>' });
    config({ added_tokens_decoder: {} });
    expect(findChatTemplate(folder)?.special).toEqual({});
  });

  describe.skipIf(!isBuilt)('in its thread', async () => {
    const { ChatTemplate } = isBuilt
      ? ((await import(pathToFileURL(MODULE).href)) as typeof Built)
      : ({} as typeof Built);
    const render = async (text: string, seconds = 5): Promise<string> => {
      const template = new ChatTemplate({ text, special: { bos_token: '<s>' }, where: 'here' }, seconds);
      try {
        return await template.render({ messages: USER.map(dict) });
      } finally {
        await template.close();
      }
    };

    it('writes conversations, and goes on after a failure', async () => {
      const template = new ChatTemplate({
        text: `${TURNS}{% if messages | length > 1 %}{{ raise_exception('no') }}{% endif %}`,
        special: { bos_token: '<s>' },
        where: 'here',
      });
      const failed = expect(template.render({ messages: [...USER, ...USER].map(dict) })).rejects.toThrow(
        /^here: the chat template fails: "no"$/,
      );
      expect(await template.render({ messages: USER.map(dict) })).toBe('<s><user>Hi');
      await failed;
      await template.close();
    });

    it.each([
      ['{% for %}', 'the chat template fails'],
      ["{{ raise_exception('roles must alternate') }}", 'the chat template fails: "roles must alternate"'],
      ['{% for a in range(1000000) %}{% for b in range(1000000) %}{% endfor %}{% endfor %}', 'the chat template fails'],
      [
        "{% set n = namespace(x='aaaaaaaa') %}{% for a in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
        'the chat template fails',
      ],
    ])(
      'fails in one line: %s',
      async (text, message) => {
        await expect(render(text, 1)).rejects.toMatchObject({
          name: 'UserError',
          message: expect.stringContaining(message) as string,
        });
      },
      30_000,
    );
  });
});
