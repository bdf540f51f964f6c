/** Folders of shards, as runs with --shard leave them. */
import { mkdirSync, rmSync } from 'node:fs';
import { throughputOf } from '../../evaluate/results.js';
import { resultsFolder } from '../../evaluate/shard.js';
import { multipleChoice } from '../../evaluate/fileTasks.js';
import { writeFileRun } from './fileRun.js';

const questions = [0, 1].map((docId) =>
  multipleChoice.read({ question: 'Why?', choices: ['a', 'b'], label: 1 }, docId, `x:${docId + 1}`),
);

/** Two shards of one question each, written as a run writes them. Returns the folder of the first. */
export async function writeShards(out: string): Promise<string> {
  rmSync(out, { recursive: true, force: true });
  const run = { checkpoint: 'c0ffee', task: 'multiple_choice', dataset: 'ab', questions: 2 };
  const throughput = throughputOf({
    questions: 1,
    tokensComputed: 4,
    tokensWithoutSharing: 6,
    tokensGrouped: 6,
    tokensShared: 6,
    loadSeconds: 1,
    scoreSeconds: 2,
    modelFlops: 1e6,
  });
  for (const index of [1, 2]) {
    const shard = { index, count: 2, run };
    mkdirSync(resultsFolder(out, 'm', shard), { recursive: true });
    await writeFileRun(out, {
      taskName: 'multiple_choice',
      modelName: 'm',
      config: { model: 'tilewright', sharing: 'tree' },
      provenance: {
        checkpoint: 'c0ffee',
        checkpoint_path: 'm',
        tokenizer_sha256: 'ab',
        bos_tokens: [1],
        context_length: 64,
        overlong: 'truncate',
        truncated_choices: 0,
        dataset_path: 'x',
        dataset_sha256: 'ab',
        docs: '0:2',
        questions: 2,
        questions_sha256: 'ab',
      },
      questionsInDataset: 2,
      questions: [questions[index - 1]!],
      scores: [{ docId: index - 1, ll: [-2, -1.25], greedy: [false, true] }],
      throughput,
      started: new Date(0),
      finished: new Date(1000),
      version: '0.1.0',
      shard,
    });
  }
  return resultsFolder(out, 'm', { index: 1, count: 2 });
}
