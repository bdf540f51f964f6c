/**
 * The real question sets with the checkpoints' tokenizers, compared with the token counts and scores of the golden
 * files.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { loadDataset } from '../../evaluate/dataset.js';
import type { Scores } from '../../evaluate/metrics.js';
import { modelFolder } from '../../evaluate/output.js';
import { throughputOf } from '../../evaluate/results.js';
import { fileTaskByName } from '../../evaluate/fileTasks.js';
import { type TokenizedQuestion, tokenizeQuestions } from '../../evaluate/tokenize.js';
import { planTrees } from '../../evaluate/treePlan.js';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { prepareOutput } from '../../system/write.js';
import { writeFileRun } from '../support/fileRun.js';
import { casesHere, thorough } from '../support/thorough.js';

const SHARED = fileURLToPath(new URL('../../../shared', import.meta.url));
const isAbsent = !existsSync(join(SHARED, 'golden'));
if (isAbsent) process.stderr.write(`SKIPPED test/evaluate/realData: ${SHARED} is absent\n`);

interface Golden {
  readonly doc_id: number;
  readonly n_ctx: number;
  readonly n_cont: readonly number[];
  readonly ll: readonly number[];
}
interface Summary {
  readonly acc: number;
  readonly acc_stderr: number;
  readonly acc_norm: number;
  readonly acc_norm_stderr: number;
}

function golden(name: string): { summary: Summary | undefined; questions: Golden[] } {
  const lines = readFileSync(join(SHARED, 'golden', `${name}.jsonl`), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Golden | { readonly summary: Summary });
  const first = lines.find((line) => 'summary' in line);
  return {
    summary: first !== undefined && 'summary' in first ? first.summary : undefined,
    questions: lines.filter((line) => 'doc_id' in line),
  };
}

const DATA = { hellaswag: 'hellaswag_val.jsonl.gz', arc_challenge: 'arc_challenge_test.jsonl.gz' } as const;
const load = (task: keyof typeof DATA, limit?: number): ReturnType<typeof loadDataset> =>
  loadDataset({ path: join(SHARED, 'data', DATA[task]), task: fileTaskByName(task), limit });

const CAPACITY = { maxTokens: 4096, maxRows: 4096 };
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
/** The tokens that the golden lengths imply. */
const impliedNone = (list: readonly Golden[]): number =>
  sum(list.map(({ n_ctx, n_cont }) => sum(n_cont.map((n) => n_ctx + n - 1))));
const impliedContext = (list: readonly Golden[]): number =>
  sum(list.map(({ n_ctx, n_cont }) => n_ctx + sum(n_cont.map((n) => n - 1))));

describe.skipIf(isAbsent)('real question sets', () => {
  const COUNTED = [
    ['demo', 'hellaswag', 'demo'],
    ['mha-2m', 'hellaswag', 'mha-2m'],
    ['gqa-4m', 'hellaswag', 'gqa-4m'],
    ['demo', 'arc_challenge', 'arc-demo'],
  ] as const;
  it.each(casesHere<(typeof COUNTED)[number]>(COUNTED, 0, 3))(
    'have the golden token counts with the tokenizer of %s on %s',
    async (checkpoint, task, goldenName) => {
      const count = 400;
      const { questions } = await load(task, count);
      const tokenizer = {
        moduleUrl: new URL('../../models/tokenizer/thread.ts', import.meta.url).href,
        spec: openTokenizer(join(SHARED, 'checkpoints', checkpoint)).spec,
      };
      const tokenized = await tokenizeQuestions(questions, { tokenizer });
      const expected = golden(goldenName).questions.slice(0, count);
      expect(
        tokenized.map(({ docId, context, continuations }) => ({
          doc_id: docId,
          n_ctx: context.length,
          n_cont: continuations.map((tokens) => tokens.length),
        })),
      ).toEqual(expected.map(({ doc_id, n_ctx, n_cont }) => ({ doc_id, n_ctx, n_cont })));
      const [none, context, tree] = (['none', 'context', 'tree'] as const).map(
        (sharing) => planTrees(tokenized, sharing, CAPACITY).tokensComputed,
      );
      expect([none, context]).toEqual([impliedNone(expected), impliedContext(expected)]);
      expect(tree ?? Infinity).toBeLessThan(context ?? 0);
    },
  );

  thorough('have 3,582,436 tokens without sharing and 1,859,959 with shared contexts on all of HellaSwag', () => {
    const { questions } = golden('gqa-4m');
    let next = 2;
    const distinct = (length: number): Int32Array => Int32Array.from({ length }, () => next++);
    const tokenized = questions.map(({ doc_id, n_ctx, n_cont }): TokenizedQuestion => ({
      docId: doc_id,
      context: distinct(n_ctx),
      continuations: n_cont.map(distinct),
    }));
    expect(impliedNone(questions)).toBe(3_582_436);
    expect(planTrees(tokenized, 'none', CAPACITY)).toMatchObject({
      tokensComputed: 3_582_436,
      tokensWithoutSharing: 3_582_436,
    });
    expect(planTrees(tokenized, 'context', CAPACITY).tokensComputed).toBe(1_859_959);
    // Nothing in common: trees can save nothing, and every question stays by itself.
    expect(planTrees(tokenized, 'tree', CAPACITY)).toMatchObject({ tokensComputed: 1_859_959 });
  });

  const SUMMED = [
    ['hellaswag', 'demo'],
    ['hellaswag', 'gqa-4m'],
    ['arc_challenge', 'arc-demo'],
  ] as const;
  it.each(casesHere<(typeof SUMMED)[number]>(SUMMED, 2))(
    'reproduce the golden summary from golden scores on %s (%s), in samples that the comparison accepts',
    async (task, goldenName) => {
      const { questions, total } = await load(task);
      const { summary, questions: expected } = golden(goldenName);
      const scores = expected.map(({ doc_id, ll }): Scores => ({ docId: doc_id, ll, greedy: ll.map(() => false) }));
      const out = mkdtempSync(join(tmpdir(), 'tilewright-golden-'));
      try {
        prepareOutput(modelFolder(out, 'golden'));
        const date = new Date();
        const { results, samplesPath } = await writeFileRun(out, {
          taskName: task,
          modelName: 'golden',
          config: {},
          provenance: {
            checkpoint: 'c0ffee00c0ffee00',
            checkpoint_path: 'some/model',
            tokenizer_sha256: 'ab',
            bos_tokens: [1],
            context_length: 2048,
            overlong: 'truncate' as const,
            truncated_choices: 0,
            dataset_path: 'val.jsonl',
            dataset_sha256: 'ab',
            docs: '0,7',
            questions: 2,
            questions_sha256: 'ab',
          },
          questionsInDataset: total,
          questions,
          scores,
          throughput: throughputOf({
            questions: total,
            tokensComputed: 0,
            tokensWithoutSharing: 0,
            tokensGrouped: 0,
            tokensShared: 0,
            loadSeconds: 0,
            scoreSeconds: 0,
            modelFlops: 0,
          }),
          started: date,
          finished: date,
          version: '0',
        });
        if (summary !== undefined) {
          expect(results.results[task]).toEqual({
            name: task,
            alias: task,
            sample_len: questions.length,
            'acc,none': summary.acc,
            'acc_norm,none': summary.acc_norm,
            'acc_stderr,none': expect.closeTo(summary.acc_stderr, 12) as number,
            'acc_norm_stderr,none': expect.closeTo(summary.acc_norm_stderr, 12) as number,
          });
        }
        const check = spawnSync(
          process.execPath,
          [
            join(SHARED, 'check', 'compare-golden.mjs'),
            samplesPath,
            join(SHARED, 'golden', `${goldenName}.jsonl`),
            '--abs',
            '0',
            '--rel',
            '0',
          ],
          { encoding: 'utf8' },
        );
        expect(check.stdout).toContain(`${total} questions`);
        expect(check.stdout).toContain('same choice 100.000%');
        expect([check.status, check.stderr]).toEqual([0, '']);
      } finally {
        rmSync(out, { recursive: true });
      }
    },
  );
});
