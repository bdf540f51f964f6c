/** `compare`: how the answers of two runs differ, and whether that is more than chance. */
import { compareFiles, type Comparison } from '../evaluate/compare/compareRuns.js';
import { findRun } from '../evaluate/compare/findRuns.js';

/** Each a folder of results, a results_*.json or a samples_*.jsonl. Differences are B less A. Throws UserError. */
export const compare = (a: string, b: string): Comparison => compareFiles(findRun(a), findRun(b));
