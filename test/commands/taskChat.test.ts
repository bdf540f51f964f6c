/** Conversations of tasks, written by a model's template. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { TaskChat } from '../../commands/taskChat.js';
import type { DocumentRequests } from '../../tasks/requests/task.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-chat-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

const TEMPLATE =
  "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" +
  '<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}';

describe('conversations of a task', () => {
  it('are written without the system message where a template refuses it, and a line says so once', async () => {
    writeFileSync(join(root, 'chat_template.jinja'), TEMPLATE);
    const warnings: string[] = [];
    const chat = new TaskChat(root, true, undefined, (line) => warnings.push(line));
    const write = async (content: string): Promise<DocumentRequests> => {
      const messages = [
        { role: 'system', content: 'S' },
        { role: 'user', content },
      ];
      const context = chat.chat.render(messages, true);
      const request = { kind: 'loglikelihood', continuation: 'c' } as const;
      const requests = [
        { ...request, context },
        { ...request, context: '' },
      ];
      const about = { docId: 0, document: new Map(), target: '', gold: '', choices: undefined, hasManyTargets: false };
      return chat.write({ ...about, requests });
    };
    const written = [await write('a'), await write('b')];
    await chat.close();
    expect(written.map(({ requests }) => requests.map((each) => 'context' in each && each.context))).toEqual([
      ['<user>a<assistant>', ''],
      ['<user>b<assistant>', ''],
    ]);
    expect(warnings).toEqual([expect.stringMatching(/no system.*written without their system message$/)]);
  });
});
