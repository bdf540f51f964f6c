/**
 * Texts with drafts are those without, to the byte, whoever drafts: of `generate` and of tasks, whose journals go on
 * with another drafter. test/slow/drafts.test.ts has servers and searches.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { casesHere, isThorough } from '../support/thorough.js';
import { headTensors, safetensorsFile, tensorsOf, writeCheckpoint } from './smallModel.js';
import { failure, filesOf, isBuilt, success, temporaryFolder, tilewright } from './support.js';

/** Small steps have the fewest kernels to compile. */
const STEPS = ['--batch-tokens', '32', '--cache-tokens', '1024'];
const PLACE = ['--target', 'cpu', '--precision', 'f32', '--threads', '2', ...STEPS];
const PROMPTS = ['the cat waits the cat waits the cat', 'the train', 'a teacher sings on the hill'];

describe.skipIf(!isBuilt)('texts with drafts', () => {
  let model = '';
  /** The flags of each drafter: two of the host, the model itself, a head, and another model. */
  let drafters: readonly (readonly string[])[] = [];
  beforeAll(() => {
    model = writeCheckpoint();
    const other = writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) }, 'other');
    const config = { num_hidden_layers: 1 };
    const head = writeCheckpoint({ config, weights: safetensorsFile(headTensors()) }, 'head');
    drafters = casesHere(
      [
        ['--draft', 'suffix', '--draft-tokens', '8'],
        ['--draft', 'ngram', '--draft-tokens', '4'],
        ['--draft', model, '--draft-tokens', '5'],
        ['--draft', head, '--draft-tokens', '3'],
        ['--draft', other, '--draft-tokens', '3'],
      ],
      ...[0, 1, 2],
    );
  });

  /** Lines without what depends on the moment, and what became of all drafts. */
  async function generated(...flags: string[]) {
    const { stdout } = success(await tilewright(['generate', model, ...PROMPTS, '--json', ...PLACE, ...flags]));
    const drafted = { drafted: 0, accepted: 0 };
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((line) => {
        const { drafts, foundTokens: _, ...rest } = JSON.parse(line) as Record<string, unknown>;
        const { drafted: many, accepted } = (drafts ?? { drafted: 0, accepted: 0 }) as typeof drafted;
        drafted.drafted += many;
        drafted.accepted += accepted;
        return rest;
      });
    return { lines, ...drafted };
  }

  const cases: readonly (readonly [what: string, drafters: number, flags: readonly string[]])[] = [
    ['most likely', 5, ['--max-new-tokens', '40']],
    ['drawn', isThorough ? 5 : 3, ['--max-new-tokens', '24', '--temperature', '0.9', '--seed', '5', '--n', '2']],
    [
      'filtered, and with penalties',
      2,
      [
        ...['--max-new-tokens', '24', '--temperature', '0.8', '--top-p', '0.9', '--repetition-penalty', '1.2'],
        ...['--top-logprobs', '2', '--min-new-tokens', '5', '--stop', 'e'],
      ],
    ],
  ];
  it.each(casesHere(cases, 0))('are the same: %s', async (_, count, flags) => {
    const plain = await generated(...flags, '--draft', 'off');
    expect(plain.drafted).toBe(0);
    // In CI, one of the host and one of a device.
    for (const drafter of isThorough ? drafters.slice(0, count) : [drafters[0]!, drafters[2]!])
      expect((await generated(...flags, ...drafter)).lines).toEqual(plain.lines);
  });

  it('take all drafts of a draft model that is the model itself', async () => {
    const { drafted, accepted } = await generated('--max-new-tokens', '40', ...drafters[2]!);
    expect(drafted).toBeGreaterThan(20);
    expect(accepted).toBe(drafted);
  });

  it('are refused in one line where the draft is none', async () => {
    const tokens = writeCheckpoint({ config: { vocab_size: 97 } }, 'fewer');
    const refused = failure(await tilewright(['generate', model, 'a', '--json', ...PLACE, '--draft', tokens]));
    expect(refused.error).toContain(tokens);
    const none = failure(await tilewright(['generate', model, 'a', '--json', ...PLACE, '--draft', temporaryFolder()]));
    expect(none.error.split('\n')).toHaveLength(1);
  });

  it('of tasks have the same samples, and go on from a journal with another drafter', async () => {
    const folder = temporaryFolder();
    const [data, task] = [join(folder, 'data.jsonl'), join(folder, 'texts.yaml')];
    writeFileSync(data, PROMPTS.map((q) => `${JSON.stringify({ q })}\n`).join(''));
    const settings = {
      ...{ task: 'texts', dataset_path: 'json', dataset_kwargs: { data_files: { test: data } }, test_split: 'test' },
      ...{ output_type: 'generate_until', doc_to_text: '{{q}}', doc_to_target: '{{q}}' },
      generation_kwargs: { until: ['no such text'], max_gen_toks: 24 },
      metric_list: [{ metric: 'exact_match' }],
    };
    writeFileSync(task, JSON.stringify(settings));
    const run = async (out: string, ...flags: string[]) => {
      const asked = ['run', model, '--tasks', task, '--out', out, ...PLACE, ...flags];
      const { stderr } = success(await tilewright(asked));
      return { stderr, samples: readFileSync(filesOf(out, 'samples').at(-1)!, 'utf8') };
    };
    const out = temporaryFolder();
    const plain = await run(out, '--draft', 'off');
    expect((await run(temporaryFolder(), ...drafters[1]!)).samples).toBe(plain.samples);
    // A kill has left two of three texts, the second one cut.
    const own = join(out, readdirSync(out)[0]!);
    const journal = join(
      own,
      readdirSync(own).find((name) => name.startsWith('texts_'))!,
    );
    const lines = readFileSync(journal, 'utf8').split('\n');
    writeFileSync(journal, `${lines.slice(0, 2).join('\n')}\n${lines[2]!.slice(0, 30)}`);
    const resumed = await run(out, '--draft', 'suffix', '--resume');
    expect(resumed.stderr).toContain('1 text taken over');
    expect(resumed.samples).toBe(plain.samples);
  });
});
