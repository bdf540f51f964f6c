/** `tilewright generate` with small models made up here: artifacts, conversations, and values that are not finite. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CONFIG, safetensorsFile, tensorsOf, writeCheckpoint } from './smallModel.js';
import { CAPACITY, failure, isBuilt, success, temporaryFolder, tilewright } from './support.js';

const SCORING = ['--target', 'cpu', '--precision', 'f32', ...CAPACITY];
/** One amount of memory, so that kernels are compiled once. */
const PLACE = [...SCORING, '--cache-tokens', '512'];
const FLAGS = ['--threads', '2', '--max-new-tokens', '6', '--json'];

/** JSON lines of prompts, in a file. */
function promptFile(...lines: readonly object[]): string {
  const path = join(temporaryFolder(), 'prompts.jsonl');
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return path;
}

interface Line {
  readonly tokens: readonly number[];
  readonly promptTokens: number;
  readonly error?: string;
}
const linesOf = (stdout: string): Line[] =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);

describe.skipIf(!isBuilt)('generate with a small model', () => {
  it('runs artifacts that were compiled for it, and names the command that compiles others again', async () => {
    const model = writeCheckpoint();
    const prompts = ['--prompts', promptFile({ tokens: [1, 2, 3] }, { prompt: 'the cat' })];
    const wanted = success(await tilewright(['generate', model, ...prompts, ...FLAGS, ...PLACE]));
    const folder = temporaryFolder();
    const [both, scoring] = [join(folder, 'both.tw'), join(folder, 'scoring.tw')];
    success(await tilewright(['compile', model, ...PLACE, '-o', both]));
    expect(success(await tilewright(['generate', both, ...prompts, ...FLAGS])).stdout).toBe(wanted.stdout);
    const inspected = success(await tilewright(['inspect', both])).stdout;
    expect(inspected).toContain('2 layers');
    expect(inspected).toMatch(/^buckets +score: 64, 96\n +step: 1, 2, 4, .*96\n/m);
    // Its number of tokens is a default.
    const larger = success(await tilewright(['generate', both, ...prompts, ...FLAGS, '--cache-tokens', '1024']));
    expect(larger.stdout).toBe(wanted.stdout);
    const short = ['--prompts', promptFile({ tokens: [1, 2, 3] }), '--max-new-tokens', '40', '--cache-tokens', '16'];
    const [cut] = linesOf(success(await tilewright(['generate', both, ...short, '--json', '--quiet'])).stdout);
    expect(cut).toMatchObject({ reason: 'cache' });
    expect(cut!.tokens).toHaveLength(13);
    const fixed = failure(await tilewright(['generate', both, 'x', '--json', '--batch-tokens', '64']));
    expect(fixed.error).toContain('--batch-tokens: ');

    success(await tilewright(['compile', model, ...SCORING, '-o', scoring]));
    const refused = failure(await tilewright(['generate', scoring, ...prompts, ...FLAGS]));
    expect(refused.error).toContain('was compiled for scoring only');
    expect(refused.hint).toMatch(/^tilewright compile .* -o .*scoring\.tw --cache-tokens \d+$/);
    const asked = failure(await tilewright(['generate', scoring, ...prompts, ...FLAGS, '--cache-tokens', '512']));
    expect(asked.error).toContain('was compiled for scoring only');
    expect(asked.hint).toMatch(/^tilewright compile .* --cache-tokens 512 -o .*scoring\.tw$/);

    const plain = failure(await tilewright(['generate', both, 'x', '--json', '--beams', '2']));
    expect(plain.error).toContain('its steps keep no logits');
    expect(plain.hint).toMatch(/^tilewright compile .* --cache-tokens 512 --logits$/);
    const withLogits = join(folder, 'logits.tw');
    success(await tilewright(['compile', model, ...PLACE, '--logits', '-o', withLogits]));
    const searched = linesOf(
      success(await tilewright(['generate', withLogits, ...prompts, ...FLAGS, '--beams', '1'])).stdout,
    );
    expect(searched.map(({ tokens }) => tokens)).toEqual(linesOf(wanted.stdout).map(({ tokens }) => tokens));

    const manifest = join(both, 'manifest.json');
    writeFileSync(manifest, readFileSync(manifest, 'utf8').replace('"cacheTokens": 512,', ''));
    const changed = failure(await tilewright(['generate', both, ...prompts, ...FLAGS]));
    expect(changed.error).toContain('this is not the graph that the config.json of the checkpoint compiles to');
  });

  it('ends at the tokens that generation_config.json names, and only shows the sampling that it suggests', async () => {
    const model = writeCheckpoint();
    const run = (...more: string[]) =>
      tilewright(['generate', model, '--prompts', promptFile({ tokens: [1, 2, 3] }), ...more, ...PLACE]);
    const [before] = linesOf(success(await run(...FLAGS)).stdout);
    const third = before!.tokens[2]!;
    const config = { eos_token_id: [third], do_sample: true, temperature: 0.6 };
    writeFileSync(join(model, 'generation_config.json'), JSON.stringify(config));
    const outcome = success(await run(...FLAGS));
    const [after] = linesOf(outcome.stdout);
    expect(after).toMatchObject({ tokens: before!.tokens.slice(0, before!.tokens.indexOf(third) + 1), reason: 'eos' });
    expect(success(await run('--max-new-tokens', '2')).stderr).toContain(
      'generation_config.json suggests --temperature 0.6;',
    );
    expect(failure(await run(...FLAGS, '--logit-bias', '320=1')).error).toBe(
      'a logit bias for token 320: the model has 320 tokens',
    );
  });

  it('writes conversations as the template says, without a second beginning of text', async () => {
    const model = writeCheckpoint();
    const config = join(model, 'tokenizer_config.json');
    const template = '{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}';
    writeFileSync(config, JSON.stringify({ bos_token: '<s>', chat_template: template }));
    const chat = { messages: [{ role: 'user', content: 'the cat' }] };
    const run = (...prompts: readonly object[]) =>
      tilewright(['generate', model, '--prompts', promptFile(...prompts), ...FLAGS, ...PLACE]);
    // The tokenizer puts <s> before a text by itself.
    const [own, same] = linesOf(success(await run(chat, { prompt: 'user: the cat\n' })).stdout);
    expect(own).toMatchObject({ tokens: same!.tokens, promptTokens: same!.promptTokens });

    writeFileSync(config, JSON.stringify({ chat_template: "{{ raise_exception('no such role') }}" }));
    expect(failure(await run({ tokens: [1] }, chat)).error).toMatch(
      /^prompts\.jsonl:2: .*tokenizer_config\.json: the chat template fails: "no such role"$/,
    );
    writeFileSync(config, '{}');
    expect(failure(await run(chat)).error).toContain('prompts.jsonl:1: the model has no chat template');
  });

  it('names the prompt and the layer of a value that is not finite, and goes on with the others', async () => {
    const bad = 5;
    const tensors = tensorsOf().map((tensor) =>
      tensor.name === 'model.embed_tokens.weight'
        ? { ...tensor, values: tensor.values.map((value, i) => (Math.floor(i / 64) === bad ? NaN : value)) }
        : tensor,
    );
    const head = { name: 'lm_head.weight', shape: [320, 64], values: tensorsOf(2)[0]!.values };
    const model = writeCheckpoint({
      config: { ...CONFIG, tie_word_embeddings: false },
      weights: safetensorsFile([...tensors, head]),
    });
    const run = (...prompts: readonly object[]) =>
      tilewright(['generate', model, '--prompts', promptFile(...prompts), ...FLAGS, ...PLACE]);
    const good = [{ tokens: [1, 2, 3] }, { tokens: Array.from({ length: 40 }, (_, i) => 20 + i) }];
    const wanted = linesOf(success(await run(...good)).stdout);
    const outcome = await run(good[0]!, { tokens: [1, bad, 3] }, good[1]!);
    expect(outcome.status).toBe(1);
    const [first, failed, last] = linesOf(outcome.stdout);
    expect([first!.tokens, last!.tokens]).toEqual(wanted.map(({ tokens }) => tokens));
    expect(failed!.error).toMatch(/^a value is NaN or infinite in (embed|layers\.0\.)/);
    expect(outcome.stderr).toContain('error: prompts.jsonl:2: a value is NaN or infinite in ');
  });
});
