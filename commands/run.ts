/** `run`: checkpoint or artifact, and tasks of lm-evaluation-harness or questions of a file → results. */
import { settleTarget } from '../driver/devices/chooseTarget.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { Ui } from '../driver/requests.js';
import { requireModelAt } from '../models/model/refusals.js';
import { runCompared } from './compareWith.js';
import type { RunRequest, RunResult, TasksRequest } from './runRequest.js';

export async function run(
  asked: WithTargetChoice<RunRequest> | WithTargetChoice<TasksRequest>,
  ui: Ui,
): Promise<RunResult> {
  requireModelAt(asked.model);
  if (asked.compareWith !== undefined) return runCompared(asked, ui, run);
  const request = 'tasks' in asked ? await settleTarget(asked, ui) : await settleTarget(asked, ui);
  const { output, isDryRun } = request;
  if (output === undefined && isDryRun !== true) ui.note('no --out: results are printed, nothing is written');
  return (await import('./runEvaluation.js')).runEvaluation(request, ui);
}
