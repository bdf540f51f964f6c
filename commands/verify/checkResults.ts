/** results_*.json beside what its run makes of the same data and answers: figures, settings, the model. */
import { answersOfGroups, type TaskAnswers } from '../../evaluate/taskAnswers.js';
import { jsonOf } from '../../evaluate/taskConfig.js';
import { taskResults } from '../../evaluate/results.js';
import { compareFields } from '../../evaluate/verify/compareFields.js';
import type { CheckName, Findings } from '../../evaluate/verify/findings.js';
import { type FinishedRun, own } from '../../evaluate/verify/readRun.js';
import { isRecord } from '../../system/json.js';
import type { Node } from '../../tasks/definition/settings.js';
import { SEEDS } from '../../tasks/requests/seeds.js';
import { BOOTSTRAP_DRAWS } from '../../tasks/scores/aggregate.js';
import type { TasksRequest } from '../runRequest.js';

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
  { content }: FinishedRun,
  nodes: readonly Node[],
  finished: readonly TaskAnswers[],
): void {
  const groups = answersOfGroups(nodes, new Map(finished.map((each) => [each.task.name, each])));
  const { results, groups: scored, 'n-samples': counts, ...settings } = taskResults(finished, groups);
  const hashes = Object.fromEntries(finished.map(({ task, hash }) => [task.name, hash]));
  const figures = { results, groups: scored, 'n-samples': counts, task_hashes: hashes };
  compareAll(findings, 'metrics', content, figures);
  compareAll(findings, 'settings', content, settings);
}

/** What the fields for other tools say was asked, beside what the record says. */
export function checkAsked(findings: Findings, { record, content }: FinishedRun, request: TasksRequest): void {
  const { seeds = SEEDS, generation, limit, systemInstruction, isMultiturn, appliesChatTemplate } = request;
  const config = {
    model_args: `model=${record.model},precision=${record.precision}`,
    device: record.device.target,
    isa: record.device.isa,
    limit: limit ?? null,
    bootstrap_iters: BOOTSTRAP_DRAWS,
    gen_kwargs: generation === undefined ? null : jsonOf(generation),
    ...{ random_seed: seeds.python, numpy_seed: seeds.numpy, torch_seed: seeds.torch, fewshot_seed: seeds.fewshot },
  };
  compareAll(findings, 'settings', own(content, 'config'), config, 'config');
  compareAll(findings, 'settings', content, {
    system_instruction: systemInstruction ?? null,
    fewshot_as_multiturn: appliesChatTemplate === true ? isMultiturn !== false : null,
  });
}
