/**
 * `verify`: a random part of a finished run, computed again from the run's own record. Every document is made again
 * from its data and compared with its sample; figures are computed again from all samples; and the answers to the
 * chosen documents are computed by the model, to be equal to the bit.
 */
import { settleTarget } from '../../driver/devices/chooseTarget.js';
import type { Ui } from '../../driver/requests.js';
import { readFinishedRun } from '../../evaluate/verify/readRun.js';
import type { Verification } from '../../evaluate/verify/verification.js';
import { runEvaluation } from '../run.js';
import { requestAgain, type VerifyRequest } from './again.js';
import { RunCheck } from './runCheck.js';

/** Rejects with UserError where the run cannot be computed again here: files are not there, or say too little. */
export async function verify(request: VerifyRequest, ui: Ui): Promise<Verification> {
  const begin = performance.now();
  ui.phase('read results', request.results);
  const run = readFinishedRun(request.results);
  const { again, opened } = await requestAgain(run, request);
  for (const { what, path } of opened) ui.note(`${what}: ${path}`);
  await settleTarget(again, ui);
  const check = new RunCheck(run, request, ui);
  try {
    await runEvaluation(again, ui, check.use(again));
    return check.verification(opened, (performance.now() - begin) / 1000);
  } finally {
    check.close();
  }
}
