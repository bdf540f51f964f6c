/** `run`: checkpoint or artifact, and questions → results. */
import { settleTarget } from '../driver/devices/chooseTarget.js';
import type { Ui } from '../driver/requests.js';
import type { WithTargetChoice } from '../driver/targets/precision.js';
import { requireModelAt } from '../models/model/refusals.js';
import { runCompared } from './compareWith.js';
import type { RunRequest, RunResult, TasksRequest } from './runRequest.js';

/** Questions of a file. */
export async function run(asked: WithTargetChoice<RunRequest>, ui: Ui): Promise<RunResult> {
  requireModelAt(asked.model);
  if (asked.compareWith !== undefined) return runCompared(asked, ui, run);
  const request = await settleTarget(asked, ui);
  noteNothingIsWritten(request, ui);
  return (await import('./runModel.js')).runModel(request, ui);
}

/** Tasks of lm-evaluation-harness, with results in its layout. */
export async function runTasks(asked: WithTargetChoice<TasksRequest>, ui: Ui): Promise<RunResult> {
  requireModelAt(asked.model);
  if (asked.compareWith !== undefined) return runCompared(asked, ui, runTasks);
  const request = await settleTarget(asked, ui);
  noteNothingIsWritten(request, ui);
  return (await import('./runTasks.js')).runTasks(request, ui);
}

function noteNothingIsWritten({ output, isDryRun }: Pick<RunRequest, 'output' | 'isDryRun'>, ui: Ui): void {
  if (output === undefined && isDryRun !== true) ui.note('no --out: results are printed, nothing is written');
}
