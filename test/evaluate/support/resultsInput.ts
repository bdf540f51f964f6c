/** A run over two questions, as results are written from it. */
import { throughputOf } from '../../../evaluate/results.js';
import type { FileRun } from '../../support/fileRun.js';
import { hellaswag } from '../../../evaluate/fileTasks.js';

export const record = {
  activity_label: 'Tea',
  ctx_a: 'A woman fills a kettle.',
  ctx_b: 'she',
  endings: ['boils é water.', 'flies.'],
  label: 0,
};
export const questions = [hellaswag.read(record, 0, 'x:1'), hellaswag.read({ ...record, label: 1 }, 7, 'x:8')];
export const throughput = throughputOf({
  questions: 2,
  tokensComputed: 40,
  tokensWithoutSharing: 60,
  tokensGrouped: 60,
  tokensShared: 60,
  loadSeconds: 1.5,
  scoreSeconds: 2,
  modelFlops: 1e9,
});
export const resultsInput = (): FileRun => ({
  taskName: 'hellaswag',
  modelName: 'some/model:7b',
  config: {
    model: 'tilewright',
    model_args: 'pretrained=some/model:7b',
    batch_size: 'auto',
    device: 'cpu',
    limit: null,
    precision: 'f32',
    sharing: 'tree',
  },
  provenance: {
    checkpoint: 'c0ffee00c0ffee00',
    checkpoint_path: 'some/model',
    tokenizer_sha256: 'ab',
    bos_tokens: [1],
    context_length: 2048,
    overlong: 'truncate',
    truncated_choices: 0,
    dataset_path: 'val.jsonl',
    dataset_sha256: 'ab',
    docs: '0,7',
    questions: 2,
    questions_sha256: 'ab',
  },
  questionsInDataset: 10_042,
  questions,
  // In the order in which they finished.
  scores: [
    { docId: 7, ll: [-3.5, -0.30000000000000004], greedy: [false, true] },
    { docId: 0, ll: [-2, -1], greedy: [true, false] },
  ],
  throughput,
  started: new Date('2026-01-31T10:20:30.123Z'),
  finished: new Date('2026-01-31T10:20:34.623Z'),
  version: '0.1.0',
});
