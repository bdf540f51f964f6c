/**
 * Tasks of lm-evaluation-harness from their files to results: log-likelihoods of a float64 reference, what sharing
 * saves of the real data, and a run that goes on with its journal.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  readFileSync,
  readdirSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { isBuilt, ROOT, success, temporaryFolder, tilewright } from '../e2e/support.js';

const SHARED = join(ROOT, '..', 'shared');
const GOLDEN = join(SHARED, 'golden', 'requests', 'loglikelihoods');
const SOURCES = ['--include_path', join(SHARED, 'data', 'lm_eval_tasks'), '--data_root', join(SHARED, 'data', 'hub')];

interface Golden {
  readonly task: string;
  readonly doc_id: number;
  readonly ll: readonly number[];
}
interface Sample {
  readonly doc_id: number;
  readonly filtered_resps: readonly (readonly [string, string])[];
}

const linesOf = <T>(path: string): T[] =>
  readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

const RUNS: readonly (readonly [name: string, shots: string | undefined, limit: string])[] = [
  ['arc_challenge_25shot', '25', '60'],
  ['arc_challenge_5shot', '5', '120'],
  ['leaderboard_bbh_3shot', undefined, '20'],
  ['mmlu_0shot', '0', '12'],
  ['mmlu_5shot', '5', '12'],
  ['truthfulqa_mc1_0shot', '0', '120'],
  ['truthfulqa_mc2_0shot', '0', '120'],
];

describe.skipIf(!isBuilt || !existsSync(GOLDEN))('tasks of lm-evaluation-harness', () => {
  const out = temporaryFolder();
  const model = join(SHARED, 'checkpoints', 'mha-2m');
  const folder = join(out, 'mha-2m');
  const samplesOf = (task: string): Sample[] => {
    const name = readdirSync(folder)
      .filter((each) => each.startsWith(`samples_${task}_2`))
      .sort()
      .at(-1);
    return linesOf<Sample>(join(folder, name!));
  };

  test.each(RUNS)('have the log-likelihoods of a float64 reference: %s', async (name, shots, limit) => {
    const golden = linesOf<Golden>(join(GOLDEN, `mha-2m.${name}.jsonl`));
    const tasks = [...new Set(golden.map(({ task }) => task))];
    const flags = [...(shots === undefined ? [] : ['--num_fewshot', shots]), '--limit', limit, '--precision', 'f32'];
    success(await tilewright(['run', model, '--tasks', tasks.join(','), ...SOURCES, ...flags, '--output_path', out]));
    const found = new Map(
      tasks.flatMap((task) => samplesOf(task).map((each) => [`${task} ${each.doc_id}`, each] as const)),
    );
    for (const { task, doc_id, ll } of golden) {
      const own = found.get(`${task} ${doc_id}`)!.filtered_resps.map(([value]) => Number(value));
      expect(own).toHaveLength(ll.length);
      for (const [i, expected] of ll.entries())
        expect(Math.abs(own[i]! - expected), `${task} ${doc_id} ${i}`).toBeLessThanOrEqual(
          0.01 + 1e-4 * Math.abs(expected),
        );
    }
  });

  test.each([
    ['mmlu_abstract_algebra_chat_2shot', '2', '5', ['--fewshot_as_multiturn', 'false']],
    ['mmlu_abstract_algebra_turns_2shot', '2', '5', ['--system_instruction', 'You are careful.']],
    ['arc_challenge_chat_turns_0shot', '0', '2', []],
    ['gsm8k_turns_2shot', '2', '2', ['--system_instruction', 'You are careful.']],
  ])('are written by the chat template: %s', async (name, shots, limit, flags) => {
    const talking = join(temporaryFolder(), 'talking');
    cpSync(model, talking, { recursive: true });
    chmodSync(talking, 0o755);
    const end = '{% if add_generation_prompt or not loop.last %}<|end|>{% endif %}';
    writeFileSync(
      join(talking, 'chat_template.jinja'),
      `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}${end}{% endfor %}` +
        '{% if add_generation_prompt %}<|assistant|>{% endif %}',
    );
    const golden = gunzipSync(readFileSync(join(GOLDEN, '..', `${name}.jsonl.gz`)))
      .toString()
      .trim()
      .split('\n')
      .slice(0, Number(limit))
      .map((line) => JSON.parse(line) as { readonly task: string; readonly prompt_hash: string });
    const own = temporaryFolder();
    const asked = ['--tasks', golden[0]!.task, '--num_fewshot', shots, '--limit', limit, ...SOURCES];
    const output = ['--apply_chat_template', ...flags, '--output_path', own];
    success(await tilewright(['run', talking, ...asked, ...output, '--precision', 'f32']));
    const written = join(own, 'talking');
    const [samples] = readdirSync(written).filter((each) => each.startsWith('samples_'));
    const hashes = linesOf<{ prompt_hash: string }>(join(written, samples!)).map(({ prompt_hash }) => prompt_hash);
    expect(hashes.slice(0, golden.length)).toEqual(golden.map(({ prompt_hash }) => prompt_hash));
  });

  test('goes on with its journal', async () => {
    const flags = ['--tasks', 'arc_challenge,mmlu_anatomy', '--num_fewshot', '5', '--limit', '40', ...SOURCES];
    const own = temporaryFolder();
    const run = ['run', model, ...flags, '--output_path', own, '--json'];
    const whole = JSON.parse(success(await tilewright(run)).stdout) as { readonly results: unknown };
    const results = join(own, 'mha-2m');
    const journal = join(
      results,
      readdirSync(results).find((name) => name.startsWith('journal_'))!,
    );
    // As after a crash in the middle of a line.
    truncateSync(journal, Math.floor(readFileSync(journal).length / 2));
    const resumed = success(await tilewright([...run, '--resume']));
    const again = JSON.parse(resumed.stdout) as {
      readonly results: unknown;
      readonly throughput: { questions: number };
    };
    expect(again.results).toEqual(whole.results);
    expect(again.throughput.questions).toBeGreaterThan(20);
    expect(again.throughput.questions).toBeLessThan(60);
  });

  test.each([
    ['mmlu', ['--num_fewshot', '5'], 6.2],
    ['leaderboard_bbh_boolean_expressions,leaderboard_bbh_date_understanding,leaderboard_bbh_geometric_shapes', [], 15],
    ['truthfulqa_mc2', [], 16],
  ] as const)('compute common beginnings once: %s', async (tasks, flags, least) => {
    const shape = temporaryFolder();
    copyFileSync(join(ROOT, 'bench', 'models', 'llama-8b', 'config.json'), join(shape, 'config.json'));
    copyFileSync(join(SHARED, 'data', 'llama_tokenizer.model'), join(shape, 'tokenizer.model'));
    const asked = ['--tasks', tasks, ...flags, ...SOURCES, '--init', 'random:1', '--batch-tokens', '8192'];
    const { stdout } = success(await tilewright(['run', shape, ...asked, '--dry-run', '--json']));
    const plan = JSON.parse(stdout) as { readonly tokensGrouped: number; readonly tokensKept: number };
    expect(plan.tokensGrouped / plan.tokensKept).toBeGreaterThanOrEqual(least);
  });
});
