/** The section of results: a run's figures, and what it took. */
import type { ResultsDocument, RunResult } from '../document/results.js';
import type { LoadedRun } from './loadRuns.js';
import { costOf, settingsOf } from './runCost.js';
import { taskResultsOf } from './taskResults.js';

function resultOf({ files, name }: LoadedRun): RunResult {
  return {
    ...{ name, model: files.model, file: files.file },
    settings: settingsOf(files),
    tasks: taskResultsOf(files),
    ...{ breakdowns: [], calibrations: [], margins: [] },
    cost: costOf(files),
  };
}

export const collectResults = (runs: readonly LoadedRun[]): ResultsDocument => ({ runs: runs.map(resultOf) });
