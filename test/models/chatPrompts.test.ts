/**
 * Published chat templates. Jinja2 3.1.6 in transformers' environment wrote every prompt of the file, or refused to:
 * its first line has the conversations.
 */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { chatRenderer, variablesOf } from '../../models/chat/render.js';
import { parseJsonValue } from '../../python/literal.js';
import { type Dict, isDict, isList, type PyValue } from '../../python/value.js';

const FILE = fileURLToPath(new URL('../../../shared/golden/chat_templates/prompts.jsonl.gz', import.meta.url));
const isAbsent = !existsSync(FILE);
if (isAbsent) process.stderr.write(`SKIPPED test/models/chatPrompts: ${FILE} is absent\n`);

interface Case {
  readonly case: string;
  readonly text?: string;
  readonly error?: string;
}

const dictIn = (of: Dict, name: string): Dict => {
  const value = of.get(name) ?? null;
  if (!isDict(value)) throw new Error(`${name} is no object`);
  return value;
};

/** What render() is given of a conversation: all but what has a name of its own are variables of the template. */
function renderAs(render: (variables: Dict) => string, conversation: Dict, special: Record<string, string>): string {
  const { messages = null, tools = null, add_generation_prompt: opens, ...others } = Object.fromEntries(conversation);
  const variables = new Map<string, PyValue>(Object.entries(others));
  const all = { messages: isList(messages) ? messages : [], tools, variables, opensAnswer: opens === true };
  return render(variablesOf(all, special));
}

describe.skipIf(isAbsent)('published chat templates', () => {
  const [first = '{}', ...lines] = isAbsent ? [] : gunzipSync(readFileSync(FILE)).toString().trim().split('\n');
  const given = parseJsonValue(first);
  const conversations = isDict(given) && !isAbsent ? dictIn(given, 'conversations') : new Map<string, PyValue>();
  const special = isAbsent ? {} : (JSON.parse(first) as { special: Record<string, string> }).special;

  it('write what Jinja2 writes, or are refused where it refuses them', () => {
    const wrong: string[] = [];
    let prompts = 0;
    for (const line of lines) {
      const { name, template, cases } = JSON.parse(line) as { name: string; template: string; cases: readonly Case[] };
      const render = chatRenderer({ text: template, special });
      for (const each of cases) {
        prompts++;
        let text: string | undefined;
        try {
          text = renderAs(render, dictIn(conversations, each.case), special);
        } catch (error) {
          if (!(error instanceof Error) || error.constructor.name !== 'TemplateProblem') throw error;
        }
        if (text !== each.text) wrong.push(`${name}, ${each.case}`);
      }
    }
    expect(wrong).toEqual([]);
    expect(prompts).toBe(1005);
  });
});
