/** The tokenizer's own tokens around texts of tasks and of generate, where config.json says others or none. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CONFIG, writeCheckpoint } from './smallModel.js';
import { CAPACITY, filesOf, isBuilt, success, temporaryFolder, tilewright } from './support.js';

const PROMPT = 'the cat';

/** A checkpoint with the same weights and these files beside them. */
function checkpoint(besides: Readonly<Record<string, object>>): string {
  const dir = writeCheckpoint();
  for (const [name, value] of Object.entries(besides)) writeFileSync(join(dir, name), JSON.stringify(value));
  return dir;
}

const withConfig = (ids: object): object => ({ ...CONFIG, ...ids });

async function generated(model: string): Promise<{ readonly tokens: readonly number[]; readonly reason: string }> {
  const prompts = join(temporaryFolder(), 'prompts.jsonl');
  writeFileSync(prompts, `${JSON.stringify({ prompt: PROMPT })}\n`);
  const flags = ['--max-new-tokens', '8', '--json', '--threads', '2', ...CAPACITY, '--cache-tokens', '512'];
  const { stdout } = success(await tilewright(['generate', model, '--prompts', prompts, ...flags]));
  return JSON.parse(stdout) as { readonly tokens: readonly number[]; readonly reason: string };
}

/** The responses of a task with one document. */
async function responses(model: string, keys: Readonly<Record<string, unknown>>): Promise<unknown> {
  const folder = temporaryFolder();
  const data = join(folder, 'data.jsonl');
  writeFileSync(data, `${JSON.stringify({ q: PROMPT })}\n`);
  const file = {
    task: 'one',
    dataset_path: 'json',
    dataset_kwargs: { data_files: { test: data } },
    test_split: 'test',
  };
  writeFileSync(join(folder, 'one.yaml'), JSON.stringify({ ...file, ...keys }));
  const out = temporaryFolder();
  const place = ['--threads', '2', ...CAPACITY, '--cache-tokens', '512', '--out', out];
  success(await tilewright(['run', model, '--tasks', 'one', '--include-path', folder, ...place]));
  const [line = ''] = readFileSync(filesOf(out, 'samples')[0]!, 'utf8').split('\n');
  return (JSON.parse(line) as { readonly resps: unknown }).resps;
}

interface Pieces {
  readonly model: { readonly vocab: Readonly<Record<string, number>> };
}
const tokenizerOf = (dir: string): Pieces => JSON.parse(readFileSync(join(dir, 'tokenizer.json'), 'utf8')) as Pieces;
const pieceOf = ({ model }: Pieces, token: number): string =>
  Object.entries(model.vocab).find(([, id]) => id === token)![0];

const TEXTS = {
  ...{ output_type: 'generate_until', doc_to_text: '{{q}}', doc_to_target: '{{q}}' },
  generation_kwargs: { until: ['no such text'], max_gen_toks: 8 },
  metric_list: [{ metric: 'exact_match' }],
};
const ROLLING = {
  ...{ output_type: 'loglikelihood_rolling', doc_to_text: '', doc_to_target: '{{q}}' },
  metric_list: [{ metric: 'word_perplexity' }],
};

describe.skipIf(!isBuilt)("the tokenizer's own tokens", () => {
  it('end texts of generate and of tasks', async () => {
    const plain = checkpoint({});
    const { tokens } = await generated(plain);
    const at = tokens.findIndex((token, i) => i > 1 && !tokens.slice(0, i).includes(token));
    expect(at).toBeGreaterThan(1);
    const named = checkpoint({ 'tokenizer_config.json': { eos_token: pieceOf(tokenizerOf(plain), tokens[at]!) } });
    expect(await generated(named)).toMatchObject({ tokens: tokens.slice(0, at + 1), reason: 'eos' });
    const ids = { eos_token_id: tokens[at] };
    const wanted = await responses(checkpoint({ 'config.json': withConfig(ids) }), TEXTS);
    expect(wanted).not.toEqual(await responses(plain, TEXTS));
    expect(await responses(named, TEXTS)).toEqual(wanted);
  });

  it('end texts of tasks where they spell it', async () => {
    const plain = checkpoint({});
    const [[text]] = (await responses(plain, TEXTS)) as [[string]];
    // Three letters of the text, which no token has for itself.
    const spelt = [...text].slice(3, 6).join('');
    const named = checkpoint({ 'tokenizer_config.json': { eos_token: spelt } });
    expect(await responses(named, TEXTS)).toEqual([[text.slice(0, text.indexOf(spelt))]]);
  });

  it('stand before a text without a context', async () => {
    const tokenizer = tokenizerOf(checkpoint({}));
    const letter = pieceOf(tokenizer, 9);
    // It puts nothing before a text by itself.
    const bare = { ...tokenizer, post_processor: null };
    const scores = (config: object, ids: object): Promise<unknown> =>
      responses(
        checkpoint({ 'tokenizer.json': bare, 'tokenizer_config.json': config, 'config.json': withConfig(ids) }),
        ROLLING,
      );
    const [first, ninth] = [await scores({}, { bos_token_id: 0 }), await scores({}, { bos_token_id: 9 })];
    expect(first).not.toEqual(ninth);
    expect(await scores({ bos_token: '<s>', eos_token: letter }, { bos_token_id: 9 })).toEqual(first);
    expect(await scores({ bos_token: null, eos_token: letter }, { bos_token_id: 0, eos_token_id: 0 })).toEqual(ninth);
  });
});
