/** The section of results: a run's figures, their breakdowns, and what the run took. */
import type { ResultsDocument, RunResult } from '../document/results.js';
import { breakdownsOf } from './breakdowns.js';
import { calibrationOf, marginsOf } from './calibration.js';
import type { LoadedRun } from './loadRuns.js';
import { costOf, settingsOf } from './runCost.js';
import { taskResultsOf } from './taskResults.js';

function resultOf({ files, name, tasks }: LoadedRun): RunResult {
  const loaded = [...tasks];
  return {
    ...{ name, model: files.model, file: files.file },
    settings: settingsOf(files),
    tasks: taskResultsOf(files),
    breakdowns: loaded.flatMap(([task, of]) => breakdownsOf(task, of)),
    calibrations: loaded.flatMap(([task, of]) => calibrationOf(task, of) ?? []),
    margins: loaded.flatMap(([task, of]) => marginsOf(task, of) ?? []),
    cost: costOf(files),
  };
}

export const collectResults = (runs: readonly LoadedRun[]): ResultsDocument => ({ runs: runs.map(resultOf) });
