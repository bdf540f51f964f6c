/** The section of results: a run's figures, their breakdowns, and what the run took. */
import type { ResultsDocument, RunResult } from '../document/results.js';
import { breakdownsOf } from './breakdowns.js';
import { calibrationOf, marginsOf } from './calibration.js';
import type { LoadedRun } from './loadRuns.js';
import { costOf, settingsOf } from './runCost.js';
import { taskResultsOf } from './taskResults.js';

const ALL_TASKS = 'all tasks';

function resultOf({ files, name, tasks }: LoadedRun): RunResult {
  const loaded = [...tasks];
  // Several tasks are looked at as one, too: what sets of choices have in common is how sure the model is.
  const sets = [
    ...(loaded.length > 1 ? [[ALL_TASKS, loaded.map(([, of]) => of)] as const] : []),
    ...loaded.map(([task, of]) => [task, [of]] as const),
  ];
  return {
    name,
    model: files.model,
    file: files.file,
    settings: settingsOf(files),
    tasks: taskResultsOf(files),
    breakdowns: loaded.flatMap(([task, of]) => breakdownsOf(task, of)),
    calibrations: sets.flatMap(([task, of]) => calibrationOf(task, of) ?? []),
    margins: sets.flatMap(([task, of]) => marginsOf(task, of) ?? []),
    cost: costOf(files),
  };
}

export const collectResults = (runs: readonly LoadedRun[]): ResultsDocument => ({ runs: runs.map(resultOf) });
