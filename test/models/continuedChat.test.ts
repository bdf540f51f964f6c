/** Conversations whose last message is to be continued. */
import { describe, expect, it } from 'vitest';
import { ChatTemplate } from '../../models/chat/template.js';
import { valueOf } from '../../python/literal.js';
import { isList } from '../../python/value.js';

const PLAIN = '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}';
const STRIPPING = PLAIN.replace('m.content', 'm.content | trim');
const OF_PARTS =
  '{% for m in messages %}<|{{ m.role }}|>{% for part in m.content %}{{ part.text }}{% endfor %}<|end|>{% endfor %}';

async function continued(text: string, messages: readonly unknown[]): Promise<string> {
  const template = new ChatTemplate({ text, special: {}, where: 'chat_template.jinja' });
  const value = valueOf(messages);
  try {
    return await template.render({ messages: isList(value) ? value : [], continuesLast: true });
  } finally {
    await template.close();
  }
}

const user = { role: 'user', content: 'Hi' };
const answer = (content: unknown): Record<string, unknown> => ({ role: 'assistant', content });

describe('a message that is to be continued', () => {
  it.each([
    ['a letter that the end of a message has', PLAIN, 'e', 'e'],
    ['the end of a message itself', PLAIN, 'x<|end|>\n', 'x<|end|>\n'],
    ['spaces at its end', PLAIN, ' one, ', ' one, '],
    ['spaces that the template strips', STRIPPING, ' one, ', 'one,'],
    ['nothing', PLAIN, '', ''],
  ])('ends the text with %s', async (_, template, content, end) => {
    expect(await continued(template, [user, answer(content)])).toBe(`<|user|>Hi<|end|>\n<|assistant|>${end}`);
  });

  it('may have parts', async () => {
    const parts = [
      { type: 'text', text: 'One, ' },
      { type: 'text', text: 'two' },
    ];
    expect(await continued(OF_PARTS, [answer(parts)])).toBe('<|assistant|>One, two');
  });

  it.each([
    ['there is none', []],
    ['it has no text', [user, answer(null)]],
    ['it has no text', [user, answer([{ type: 'image' }])]],
  ])('is refused where %s', async (problem, messages) => {
    await expect(continued(PLAIN, messages)).rejects.toThrow(`is to be continued, but ${problem}`);
  });

  it('is refused where the template does not write it', async () => {
    await expect(continued('{{ messages[0].content }}', [user, answer('a')])).rejects.toThrow('does not write it');
  });
});
