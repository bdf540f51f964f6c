/** Hostile results and samples of runs, for compare and for report. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { comparisonText } from '../../cli/compareText.js';
import { compare } from '../../commands/compare.js';
import { collectReport } from '../../report/collect/collectReport.js';
import { mutateBytes, pick, type Random, several } from './mutate.js';
import { refusedWell } from './refusals.js';
import { scratch } from './scratch.js';

const DATE = '2026-01-31T10-20-30.123000';

const CHOICES = [0, 1, 2].map((i) => ({
  ...{ doc_id: i, doc: { text: `Why ${i}?` }, target: '0', filter: 'none', metrics: ['acc', 'f1'], acc: i % 2 },
  arguments: { gen_args_0: { arg_0: `Why ${i}?`, arg_1: ' a' }, gen_args_1: { arg_0: `Why ${i}?`, arg_1: ' b' } },
  ...{
    resps: [[['-1.5', 'False']], [['-2', 'True']]],
    filtered_resps: [
      ['-1.5', 'False'],
      ['nan', 'True'],
    ],
  },
  ...{ f1: [0, i % 2], doc_hash: 'ab' },
}));
const TEXTS = [0, 1].map((i) => ({
  ...{ doc_id: i, doc: { text: `Say ${i}` }, target: 'x', filter: 'strict', metrics: ['exact_match'] },
  ...{ arguments: { gen_args_0: { arg_0: `Say ${i}`, arg_1: { until: [] } } }, resps: [['one']], exact_match: 0.5 },
}));
const RESULTS = {
  results: { c: { 'acc,none': 1 / 3, sample_len: 3 }, t: { 'exact_match,strict': 0.5 }, g: { 'acc,none': 1 / 3 } },
  group_subtasks: { c: [], g: ['c', 'h'], h: ['g'] },
  configs: { c: { output_type: 'multiple_choice', metric_list: [{ metric: 'f1', aggregation: 'f1' }] } },
  ...{ versions: { c: 1 }, 'n-shot': { c: 0 }, higher_is_better: { c: { acc: true } }, model_name: 'm' },
};

/** Each file sound or changed: as a value, or byte by byte. */
function changed(values: readonly unknown[], random: Random): string | Buffer {
  const text = values.map((each) => `${JSON.stringify(random() < 0.2 ? several(each, random) : each)}\n`).join('');
  return random() < 0.15 ? mutateBytes(Buffer.from(text), random) : text;
}

function write(name: string, random: Random | undefined): string {
  const folder = join(scratch(), name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const files = [
    [`results_${DATE}.json`, [RESULTS]],
    [`samples_c_${DATE}.jsonl`, CHOICES],
    [`samples_t_${DATE}.jsonl`, TEXTS],
  ] as const;
  for (const [file, values] of files)
    writeFileSync(
      join(folder, file),
      random === undefined ? values.map((each) => `${JSON.stringify(each)}\n`).join('') : changed(values, random),
    );
  return folder;
}

function comparison(random: Random): void {
  const [sound, hostile] = [write('sound', undefined), write('hostile', random)];
  const [a, b] = pick(random, [
    [sound, hostile],
    [hostile, sound],
    [hostile, hostile],
  ]) as [string, string];
  refusedWell(() => {
    const found = compare(a, b);
    JSON.parse(JSON.stringify(found));
    if (!comparisonText(found).endsWith(`${found.summary}\n`)) throw new Error('the last line is no summary');
    for (const { metrics } of found.tasks)
      for (const { test } of metrics)
        if (test !== null && !(test.p >= 0 && test.p <= 1)) throw new Error(`a probability of ${test.p}`);
  });
  refusedWell(() => {
    for (const { name, content } of collectReport({ runs: [a, b], writer: '', now: new Date(0) }).blocks)
      if (JSON.stringify(content, (_, value: unknown) => (Number.isNaN(value) ? 'NaN' : value)).includes(':"NaN"'))
        throw new Error(`${name}: a number that is none`);
  });
}
export const comparisons = {
  about: 'results and samples of two runs, for compare and report',
  rounds: 60,
  round: comparison,
};
