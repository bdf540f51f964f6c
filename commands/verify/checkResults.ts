/** results_*.json beside what its run makes of the same data and answers: figures, settings, the model. */
import { answersOfGroups, type TaskAnswers } from '../../evaluate/taskAnswers.js';
import { jsonOf } from '../../evaluate/taskConfig.js';
import { modelArgs } from '../../evaluate/runRecord.js';
import { answeredResults } from '../../evaluate/results.js';
import { printDocs } from '../../evaluate/selection.js';
import type { TaskWindow } from '../../evaluate/windows.js';
import { compareFields } from '../../evaluate/verify/compareFields.js';
import type { CheckName, Findings } from '../../evaluate/verify/findings.js';
import { type FinishedRun, own } from '../../evaluate/verify/readRun.js';
import { isRecord } from '../../system/json.js';
import { SEEDS } from '../../tasks/requests/seeds.js';
import { BOOTSTRAP_DRAWS } from '../../tasks/scores/aggregate.js';
import type { EvaluationRequest } from '../runRequest.js';
import type { TaskSource } from '../sources.js';

type Fields = Readonly<Record<string, unknown>>;

/** Compares what is recorded under the names of `made`, and in each all that either has. */
export function compareAll(findings: Findings, check: CheckName, recorded: unknown, made: Fields, path = ''): void {
  for (const [name, computed] of Object.entries(made)) {
    const found = isRecord(recorded) ? own(recorded, name) : undefined;
    const { compared, differing } = compareFields(found, computed, path === '' ? name : `${path}.${name}`);
    findings.compared(check, compared);
    for (const { path: at, ...values } of differing) findings.differ(check, at, values);
  }
}

/** Figures of tasks and groups, from the answers in all samples, and the settings of tasks. */
export function checkTasks(
  findings: Findings,
  { content, record }: FinishedRun,
  { nodes, layout, file }: TaskSource,
  finished: readonly TaskAnswers[],
): void {
  const groups = answersOfGroups(nodes, new Map(finished.map((each) => [each.task.name, each])));
  const data = { dataset_path: record.file?.data ?? '', dataset_sha256: file?.dataset.sha256 ?? '' };
  const made = answeredResults(layout, { tasks: finished, groups }, data);
  const { results, groups: scored, 'n-samples': counts, ...settings } = made;
  const hashes = Object.fromEntries(finished.map(({ task, hash }) => [task.name, hash]));
  const figures = { results, groups: scored, 'n-samples': counts, task_hashes: hashes };
  compareAll(findings, 'metrics', content, figures);
  compareAll(findings, 'settings', content, settings);
}

/** What the fields for other tools say was asked, beside what the record says. */
export function checkAsked(
  findings: Findings,
  { record, content }: FinishedRun,
  request: EvaluationRequest,
  { file }: TaskSource,
): void {
  const { limit, systemInstruction, isMultiturn, appliesChatTemplate } = request;
  const config = {
    model_args: modelArgs(record),
    device: record.device.target,
    isa: record.device.isa,
    limit: limit ?? null,
    ...(file === undefined ? askedOfTasks(request) : { bootstrap_iters: 0 }),
  };
  compareAll(findings, 'settings', own(content, 'config'), config, 'config');
  if (file === undefined)
    compareAll(findings, 'settings', content, {
      system_instruction: systemInstruction ?? null,
      fewshot_as_multiturn: appliesChatTemplate === true ? isMultiturn !== false : null,
    });
}

const askedOfTasks = ({ seeds = SEEDS, generation }: EvaluationRequest): Fields => ({
  bootstrap_iters: BOOTSTRAP_DRAWS,
  gen_kwargs: generation === undefined ? null : jsonOf(generation),
  ...{ random_seed: seeds.python, numpy_seed: seeds.numpy, torch_seed: seeds.torch, fewshot_seed: seeds.fewshot },
});

/** The file of questions: all of its bytes, those outside of the run, too. */
export function checkFile(
  findings: Findings,
  { content }: FinishedRun,
  { dataset: { sha256, docs, questions } }: TaskWindow,
): void {
  const provenance = own(content, 'provenance');
  const stated = isRecord(provenance) ? own(provenance, 'dataset_sha256') : undefined;
  if (stated !== sha256) findings.differ('data', 'provenance.dataset_sha256', { recorded: stated, computed: sha256 });
  compareAll(findings, 'settings', provenance, { docs: printDocs(docs), questions: questions.length }, 'provenance');
}
