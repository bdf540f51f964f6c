/** Solutions that grow by steps: tokens are those of goldens, step by step and at once, with templates of any kind. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { textWriter } from '../../commands/rewardTexts.js';
import { openTemplate } from '../../commands/templates.js';
import { chooseVerifier, openVerifier, padTokenOf } from '../../commands/verifier.js';
import { ChatTemplate } from '../../models/chat/template.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import * as layouts from '../../models/heads/layout.js';
import { layOutSteps, type SolutionWriter } from '../../models/heads/solutionTexts.js';
import { stepTokensOf, type WrittenTurns } from '../../models/heads/stepTokens.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { goldensOf, VERIFIERS } from '../support/verifiers.js';

const SHARED = join(import.meta.dirname, '..', '..', '..', 'shared');
const CHECKPOINTS = join(SHARED, 'checkpoints', 'verifiers');

describe.skipIf(!existsSync(CHECKPOINTS))('tokens of verifiers', () => {
  it.each(VERIFIERS)('%s: those of goldens, and each step only adds to them', async (name) => {
    const checkpoint = openCheckpoint(join(CHECKPOINTS, name));
    const { spec, bos } = describeTokenizer(checkpoint.path);
    const tokenizer = createTokenizer(spec);
    const { layout, verdicts } = await openVerifier(checkpoint, chooseVerifier(checkpoint).language, tokenizer);
    const template = openTemplate(checkpoint.path);
    const writer = textWriter({ tokenizer, template, layout, verdicts, bos: bos?.id, pad: padTokenOf(checkpoint) });
    for (const { question, steps, tokens, rows } of goldensOf(SHARED, name).slice(0, isThorough ? undefined : 8)) {
      expect(await layOutSteps('a', question, steps, writer)).toEqual({ tokens, rows });
      if (layout.kind === 'answer') continue;
      // What two steps have alike is what one has, as far as its score.
      for (const few of [1, 2].filter((count) => count < steps.length)) {
        const { rows: own, tokens: begun } = await layOutSteps('a', question, steps.slice(0, few), writer);
        expect(own).toEqual(rows.slice(0, few));
        expect(begun.slice(0, own.at(-1)! + 1)).toEqual(tokens.slice(0, own.at(-1)! + 1));
      }
    }
    await template?.close();
  });
});

/** A token for each character, by its code; `<…>` is one. */
const encodeWritten = (text: string): Promise<readonly number[]> =>
  Promise.resolve(
    (text.match(/<[^>]*>|[^]/gu) ?? []).map((part) =>
      [...part].length === 1
        ? part.codePointAt(0)!
        : 2_000_000 + ([...part].reduce((sum, each) => sum * 31 + each.codePointAt(0)!, 7) % 1_000_000),
    ),
  );

const writerOf = (text: string, layout: layouts.Layout, encode = encodeWritten): SolutionWriter => {
  const template = new ChatTemplate({ text, special: {}, where: 'template' });
  return {
    layout,
    bos: undefined,
    pad: undefined,
    verdicts: [43, 45],
    encodeWritten: encode,
    hasTemplate: true,
    writeTurns: async (_, turns): Promise<WrittenTurns> => {
      const messages = turns.map(({ role, content }) => new Map(Object.entries({ role, content })));
      const written = await template.render({ messages, opensAnswer: false });
      return { text: written, tokens: await encode(written) };
    },
  };
};

const each = (inside: string): string => `{% for m in messages %}${inside}{% endfor %}`;
const TEMPLATES: Readonly<Record<string, string>> = {
  'as it is': each("<{{ m['role'] }}>{{ m['content'] }}<end>\n"),
  stripped: `<begin>${each("<{{ m['role'] }}>\n\n{{ m['content'] | trim }}<end>")}`,
  'without line ends at its beginning': each("<{{ m.role }}>{{ m.content.lstrip('\\n') }}<end>"),
  'without spaces at its end': each('<{{ m.role }}>{{ m.content.rstrip() }}<end>'),
  'with a first turn of its own': each(
    '{% if loop.first %}<rules>Judge.{% endif %}[{{ m.role }}] {{ m.content }}<end>',
  ),
  'with ends of answers': each(
    "{% if m.role == 'user' %}<inst> {{ m.content | trim }} <tsni>{% else %}{{ m.content }}<end>{% endif %}",
  ),
  'with the last turn marked': `${each('<{{ m.role }}>{{ m.content }}<end>')}<over>`,
};
const SPACED = ['We add.', ' 2 + 2\n', '\n\n+', '-', 'a " <b> & \\ b', '', ' ', '\n\t x \n', '2 - 2 = +'];

describe('steps behind one another', () => {
  it.each(casesHere(Object.keys(TEMPLATES), 0, 1, 6))('are what the template writes at once: %s', async (name) => {
    for (const layout of [layouts.RLHFLOW, layouts.QWEN_PROCESS]) {
      const writer = writerOf(TEMPLATES[name]!, layout);
      const { tokens, rows } = await layOutSteps('a', ' How\n many? ', SPACED, writer);
      const { chat, first } = { chat: layouts.QWEN_PROCESS.chat!, first: layouts.RLHFLOW.first };
      const turns =
        layout.kind === 'text'
          ? chat(' How\n many? ', SPACED.map((step) => step + layouts.QWEN_SEPARATOR).join(''))
          : SPACED.flatMap((step, i): layouts.Turn[] => [
              { role: 'user', content: i === 0 ? first(' How\n many? ', step) : step },
              { role: 'assistant', content: '+' },
            ]);
      expect(tokens).toEqual((await writer.writeTurns('a', turns)).tokens);
      expect(rows).toHaveLength(SPACED.length);
    }
  });

  const UNLIKE: readonly (readonly [string, string])[] = [
    ['escapes', each('<{{ m.role }}>{{ m.content | tojson }}<end>')],
    ['are written in upper case', each('<{{ m.role }}>{{ m.content | upper }}<end>')],
    ['come twice', each('<{{ m.role }}>{{ m.content }}<end>{{ m.content }}')],
    ['come in another order', '{% for m in messages | reverse %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}'],
    ['say how many there are', `<{{ messages | length }}>${each('<{{ m.role }}>{{ m.content }}<end>')}`],
    ['have numbers', each('<{{ loop.index }}>{{ m.content }}<end>')],
    ['are left out', '<{{ messages[-1].role }}>{{ messages[-1].content }}<end>'],
  ];
  it.each(casesHere(UNLIKE, 0, 2, 3, 5))('are refused where texts %s', async (_, text) => {
    await expect(layOutSteps('in.jsonl:3', 'Q', ['a', 'b'], writerOf(text, layouts.RLHFLOW))).rejects.toThrow(
      'in.jsonl:3: the chat template does not write turns behind one another as they are given',
    );
  });

  it('are refused where a tokenizer writes a separator and what follows as one token', async () => {
    const merging = async (text: string): Promise<readonly number[]> =>
      text.startsWith('<extra_0>') && text.length > 9
        ? [7, ...(await encodeWritten(text.slice(10)))]
        : encodeWritten(text);
    const writer = writerOf(TEMPLATES['as it is']!, layouts.QWEN_PROCESS, merging);
    await expect(stepTokensOf('a', layouts.QWEN_PROCESS, writer)).rejects.toThrow(
      'a: this tokenizer writes "<extra_0>" and what follows it as other tokens',
    );
    // The next one is told about the place that it asks for.
    await expect(stepTokensOf('b', layouts.QWEN_PROCESS, writer)).rejects.toThrow('b: this tokenizer');
  });

  it('have BOS and a question once, without a template', async () => {
    const own = (text: string): Promise<readonly number[]> => encodeWritten(text.replaceAll('ки', '<ки>'));
    const writer = { ...writerOf('', layouts.MATH_SHEPHERD, own), hasTemplate: false, bos: 1 };
    const { tokens, rows } = await layOutSteps('a', 'Q', ['b', 'c'], writer);
    expect(tokens).toEqual([1, ...(await own('Q Step 1: b ки\nStep 2: c ки'))]);
    expect(rows.map((row) => tokens[row])).toEqual([...(await own('ки')), ...(await own('ки'))]);
  });

  it('have no score of their own where they have no tokens: it stands at the last one before them', async () => {
    const writer = { ...writerOf('', layouts.REASON_EVAL), bos: 1 };
    const { tokens, rows } = await layOutSteps('a', 'Q', ['', 'b', ''], writer);
    expect(rows).toEqual([tokens.length - 2, tokens.length - 1, tokens.length - 1]);
  });
});
