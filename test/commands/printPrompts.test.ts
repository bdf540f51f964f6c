/** Prompts as the model sees them: from a tokenizer and a chat template, with nothing else of the model there. */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type PrintedPrompt, printPrompts } from '../../commands/generate.js';
import type { Prompt } from '../../engine/prompts.js';

const DEMO = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'models', 'demo');
const root = mkdtempSync(join(tmpdir(), 'tilewright-prompts-'));
const TEMPLATE =
  '{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}' +
  "|{{ tools }}|{{ documents }}|{{ enable_thinking }}{{ '>' if add_generation_prompt }}";

beforeAll(() => {
  copyFileSync(join(DEMO, 'tokenizer.json'), join(root, 'tokenizer.json'));
  writeFileSync(join(root, 'chat_template.jinja'), TEMPLATE);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function printed(prompts: readonly Prompt[], file?: string, model = root): Promise<readonly PrintedPrompt[]> {
  const all: PrintedPrompt[] = [];
  const named = prompts.map((prompt, i) => ({ where: `prompt ${i + 1}`, prompt }));
  const variables = new Map([['enable_thinking', true]]);
  const promptFile = join(root, 'p.jsonl');
  if (file !== undefined) writeFileSync(promptFile, file);
  const request = { model, prompts: named, templateVariables: variables };
  await printPrompts(file === undefined ? request : { ...request, promptFile }, (prompt) => all.push(prompt));
  return all;
}
const texts = async (prompts: readonly Prompt[], file?: string): Promise<readonly string[]> =>
  (await printed(prompts, file)).map(({ text }) => text);

const USER = { role: 'user', content: 'Hi' };

describe('printPrompts', () => {
  it('shows texts, tokens and conversations with the ids that the model gets', async () => {
    const [text, tokens, chat] = await printed([
      { prompt: 'Once upon' },
      { tokens: [3614, 1507] },
      { messages: [USER] },
    ]);
    expect(text).toEqual({ where: 'prompt 1', text: 'Once upon', tokens: [1, 3614, 1507] });
    expect(tokens).toEqual({ where: 'prompt 2', text: 'Once upon', tokens: [3614, 1507] });
    expect(chat?.text).toBe('[user]Hi|None|None|True>');
    expect(chat?.tokens[0]).not.toBe(1);
  });

  it('says first of all that a folder is not there', async () => {
    await expect(printed([{ prompt: 'Hi' }], undefined, join(root, 'none'))).rejects.toThrow('there is no such folder');
  });

  it('takes a file of the folder, and a folder that is called as files are', async () => {
    const folder = join(root, 'model.json');
    mkdirSync(folder, { recursive: true });
    copyFileSync(join(DEMO, 'tokenizer.json'), join(folder, 'tokenizer.json'));
    for (const model of [folder, join(folder, 'config.json')])
      expect((await printed([{ prompt: 'Once upon' }], undefined, model))[0]?.tokens).toEqual([1, 3614, 1507]);
  });

  it('gives the template parts, calls, tools, documents and variables as they are written', async () => {
    const line =
      '{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null,' +
      '"tool_calls":[{"f":{"2":1.0,"1":1}}]}],"tools":[{"a":1.0,"b":1}],"documents":[{"t":"d"}],' +
      '"chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false}';
    expect(await texts([], line)).toEqual([
      `[user][{'type': 'text', 'text': 'x'}][assistant]None[{"f": {"2": 1.0, "1": 1}}]` +
        `|[{'a': 1.0, 'b': 1}]|[{'t': 'd'}]|False`,
    ]);
    expect(await texts([{ messages: [USER], tools: [{ a: 1.5 }], documents: null }])).toEqual([
      "[user]Hi|[{'a': 1.5}]|None|True>",
    ]);
  });

  it('takes the template for tools where there are tools', async () => {
    mkdirSync(join(root, 'additional_chat_templates'), { recursive: true });
    writeFileSync(join(root, 'additional_chat_templates', 'tool_use.jinja'), 'tools: {{ tools | length }}');
    expect(await texts([{ messages: [USER], tools: [] }, { messages: [USER] }])).toEqual([
      'tools: 0',
      '[user]Hi|None|None|True>',
    ]);
    rmSync(join(root, 'additional_chat_templates'), { recursive: true });
  });

  it('names the prompt and the line of the template that fails', async () => {
    writeFileSync(join(root, 'chat_template.jinja'), 'a\n{{ messages[0].content.x.y }}');
    await expect(printed([{ messages: [USER] }])).rejects.toThrow(
      /^prompt 1: .*chat_template\.jinja: .* fails: "line 2: UndefinedError: 'str object' has no attribute 'x'"$/,
    );
    writeFileSync(join(root, 'chat_template.jinja'), TEMPLATE);
  });
});
