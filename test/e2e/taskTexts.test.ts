/** Texts of tasks: what a task and the model's own files ask of them, and which texts of an earlier run count. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { writeCheckpoint } from './smallModel.js';
import { CAPACITY, failure, filesOf, isBuilt, success, temporaryFolder, tilewright } from './support.js';

const PROMPTS = ['the cat waits', 'the train', 'a teacher sings on the hill'];
const TOKENS = 16;
const PLACE = ['--target', 'cpu', '--precision', 'f32', '--threads', '2', ...CAPACITY, '--cache-tokens', '512'];

/** A task file that asks for a text after each prompt. */
function writeTask(generation: object): string {
  const folder = temporaryFolder();
  const data = join(folder, 'data.jsonl');
  writeFileSync(data, PROMPTS.map((q) => `${JSON.stringify({ q })}\n`).join(''));
  const path = join(folder, 'texts.yaml');
  const task = {
    ...{ task: 'texts', dataset_path: 'json', dataset_kwargs: { data_files: { test: data } }, test_split: 'test' },
    ...{ output_type: 'generate_until', doc_to_text: '{{q}}', doc_to_target: '{{q}}' },
    generation_kwargs: { until: ['no such text'], max_gen_toks: TOKENS, ...generation },
    metric_list: [{ metric: 'exact_match' }],
  };
  writeFileSync(path, JSON.stringify(task));
  return path;
}

async function run(model: string, task: string, out: string, ...flags: string[]) {
  const { stderr } = success(await tilewright(['run', model, '--tasks', task, '--out', out, ...PLACE, ...flags]));
  return { stderr, out, texts: textsIn(out) };
}

const textsIn = (out: string): readonly string[] =>
  readFileSync(filesOf(out, 'samples').at(-1)!, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => (JSON.parse(line) as { resps: string[][] }).resps[0]![0]!);

/** What `generate` writes after the same prompts. */
async function generated(model: string, ...flags: string[]) {
  const path = join(temporaryFolder(), 'prompts.jsonl');
  writeFileSync(path, PROMPTS.map((prompt) => `${JSON.stringify({ prompt })}\n`).join(''));
  const more = ['--max-new-tokens', String(TOKENS), '--json', ...PLACE, ...flags];
  const { stdout } = success(await tilewright(['generate', model, '--prompts', path, ...more]));
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { text: string; tokens: number[] });
}

const asks = (model: string, config: object): void =>
  writeFileSync(join(model, 'generation_config.json'), JSON.stringify(config));

describe.skipIf(!isBuilt)('texts of tasks', () => {
  const model = writeCheckpoint();

  it('count a repetition penalty although they are the most likely ones, of the task and of the command', async () => {
    const [plain, penalised] = [await generated(model), await generated(model, '--repetition-penalty', '1.7')];
    const want = penalised.map(({ text }) => text);
    expect(want).not.toEqual(plain.map(({ text }) => text));
    const greedy = { repetition_penalty: 1.7, do_sample: false, temperature: 0.7, top_p: 0 };
    const { texts, stderr, out } = await run(model, writeTask(greedy), temporaryFolder(), '--verbose');
    expect(texts).toEqual(want);
    expect(stderr).toMatch(/first answer after .* first token /);
    const { throughput } = JSON.parse(readFileSync(filesOf(out, 'results')[0]!, 'utf8')) as {
      throughput: { start: { criticalPath: readonly { readonly phase: string | null }[] } };
    };
    expect(throughput.start.criticalPath.at(-1)).toMatchObject({ process: 'command', phase: 'first token' });
    const flags = ['--gen_kwargs', 'repetition_penalty=1.7'];
    expect((await run(model, writeTask({}), temporaryFolder(), ...flags, '--devices', '2')).texts).toEqual(want);
  });

  it("count what the model's generation_config.json asks for, unless the task says otherwise", async () => {
    const own = writeCheckpoint();
    const [plain, penalised] = [await generated(own), await generated(own, '--repetition-penalty', '1.7')];
    const end = plain[0]!.tokens[2]!;
    asks(own, { repetition_penalty: 1.7, do_sample: true, top_k: 20, no_repeat_ngram_size: 3 });
    const { texts, stderr } = await run(own, writeTask({}), temporaryFolder());
    expect(texts).toEqual(penalised.map(({ text }) => text));
    expect(stderr).toContain('generation_config.json of the model counts for texts of tasks, as for the');
    expect(stderr).toContain('model: repetition_penalty 1.7; --gen_kwargs changes it');
    expect(stderr).toMatch(/warning: left out of texts of tasks, .* of the model: no_repeat_ngram_size 3$/m);
    const out = temporaryFolder();
    const asked = await run(own, writeTask({ repetition_penalty: 1 }), out);
    const { provenance } = JSON.parse(readFileSync(filesOf(out, 'results')[0]!, 'utf8')) as Record<string, object>;
    expect(provenance).toMatchObject({ end_tokens: [], text_defaults: { repetitionPenalty: 1.7, topK: 20 } });
    expect(asked.texts).toEqual(plain.map(({ text }) => text));
    expect(asked.stderr).not.toContain('counts for texts');

    asks(own, { min_new_tokens: 8, eos_token_id: end });
    const [longer] = await generated(own, '--min-new-tokens', '8');
    expect((await run(own, writeTask({}), temporaryFolder())).texts[0]).toBe(longer!.text);
    // A text that ends an answer does so at any length.
    const [first = ''] = longer!.text;
    const stopped = await run(own, writeTask({ until: [first] }), temporaryFolder());
    expect(stopped.texts[0]).toBe('');
  });

  it('are not taken over from a run in which other tokens ended them', async () => {
    const own = writeCheckpoint();
    const [out, task, shards] = [temporaryFolder(), writeTask({}), temporaryFolder()];
    const [plain] = await generated(own);
    const before = await run(own, task, out);
    expect(before.texts[0]).toBe(plain!.text);
    await run(own, task, shards, '--shard', '1/2');
    asks(own, { eos_token_id: plain!.tokens[2]! });
    const again = ['run', own, '--tasks', task, '--out', out, ...PLACE, '--resume'];
    expect(failure(await tilewright(again)).error).toContain('belongs to another run: it differs in endTokens');
    asks(own, { repetition_penalty: 1.5 });
    expect(failure(await tilewright(again)).error).toContain('it differs in textDefaults');

    asks(own, { eos_token_id: plain!.tokens[2]! });
    const fresh = temporaryFolder();
    expect((await run(own, task, fresh)).texts[0]).not.toBe(plain!.text);
    expect((await run(own, task, fresh, '--resume')).stderr).toContain('3 texts taken over');
    await run(own, task, shards, '--shard', '2/2');
    mkdirSync(join(shards, 'merged'));
    expect(failure(await tilewright(['merge', shards, '--out', join(shards, 'merged')])).error).toContain(
      `they differ in the tokens that end texts (`,
    );
  });
});
