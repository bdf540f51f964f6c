/**
 * A run and what it is compared with: the results of an earlier run, or the same questions computed in another
 * arithmetic by a second pass. The other one is A, this run is B.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { chooseTarget } from '../driver/devices/chooseTarget.js';
import { openModel } from '../driver/functions.js';
import { isArtifact } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { targetOf } from '../driver/targets/index.js';
import { UsageError, UserError } from '../errors.js';
import { compareFiles, type Comparison } from '../evaluate/compare/compareRuns.js';
import { findRun, type RunFiles } from '../evaluate/compare/findRuns.js';
import { defined } from '../system/defined.js';
import { kindAt } from '../system/read.js';
import { writeAtomically } from '../system/write.js';
import type { Baseline, RunRequest, RunResult, ScoreRequest, TasksRequest } from './runRequest.js';

type AskedScore = WithTargetChoice<ScoreRequest>;

/** Fields of a request that change its arithmetic: those in which a baseline may differ from its run. */
const ARITHMETIC = ['precision', 'kvCache'] as const satisfies readonly (keyof ScoreRequest)[];

/** The same run in the arithmetic of a baseline. GPUs multiply 16-bit numbers, so that f32 is computed on the CPU. */
export function baselineOf<R extends AskedScore>(asked: R, baseline: Baseline): R {
  const { compareWith: _, trace: __, dump: ___, kvCache: ____, ...rest } = asked;
  const precision = baseline === '16bit' ? 'auto' : baseline;
  if (baseline !== 'f32') return { ...rest, precision } as unknown as R;
  const { devices, parallel, isa, ...others } = rest;
  const stays = asked.target === 'cpu' ? { devices, parallel } : {};
  const kept = isa === undefined || isa === 'amx' ? {} : { isa };
  const given = Object.fromEntries(Object.entries(stays).filter(([, value]) => value !== undefined));
  return { ...others, ...kept, ...given, precision, target: 'cpu' } as unknown as R;
}

/** Whether the second pass can be computed here, asked before the first. Throws UserError. */
async function requireBaseline(asked: AskedScore, other: AskedScore, baseline: Baseline): Promise<void> {
  if (isArtifact(asked.model))
    throw new UsageError(
      `--compare-with ${baseline}: ${asked.model} is compiled already, for one arithmetic`,
      'run its checkpoint in that arithmetic with --out DIR first, then --compare-with DIR',
    );
  if (baseline === '16bit' && ARITHMETIC.every((field) => asked[field] === other[field]))
    throw new UsageError(
      'this run computes with the numbers of its checkpoint itself: there is nothing to compare',
      'name another arithmetic, for example --compare-with f32, or the folder of another run',
    );
  const data = (asked as Partial<RunRequest>).data;
  if (data !== undefined && ['folder', 'other'].includes(kindAt(data) ?? ''))
    throw new UsageError('a stream of questions can be read only once', 'write them to a file for --data');
  if (data === '-') throw new UsageError('the standard input can be read only once', 'write it to a file for --data');
  const { target = 'cpu' } = await chooseTarget(other);
  const { config } = openModel(other.model, other.init);
  const { precision, isa } = other;
  try {
    targetOf(target).compiler.choose({ target, precision, ...defined({ isa }) }, detectMachine(), config.dtype);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    throw new UserError(`--compare-with ${baseline}: ${error.message}`, 'name another arithmetic, or a folder', {
      cause: error,
    });
  }
}

/** Results are compared by their samples. Throws UsageError for what writes none. */
function requireSamples(asked: AskedScore): void {
  const { isDryRun, shard } = asked;
  const { logsSamples } = asked as Partial<TasksRequest>;
  if (isDryRun === true) throw new UsageError('--dry-run computes nothing to compare', 'leave --compare-with out');
  if (shard !== undefined)
    throw new UsageError('a shard has a part of the questions', 'merge the shards, then: tilewright compare A B');
  if (logsSamples === false)
    throw new UsageError('runs are compared by their samples', 'leave --log_samples false out');
}

/** Written beside the results. */
const COMPARISON = 'comparison.json';

function written(comparison: Comparison, result: RunResult): RunResult {
  const path = join(dirname(result.resultsPath!), COMPARISON);
  writeAtomically(path, [`${JSON.stringify(comparison, null, 2)}\n`]);
  return { ...result, comparison, comparisonPath: path };
}

/** `run`: runs a request, which has no `compareWith`. Rejects with UserError. */
export async function runCompared<R extends AskedScore>(
  asked: R,
  ui: Ui,
  run: (asked: R, ui: Ui) => Promise<RunResult>,
): Promise<RunResult> {
  const { compareWith, ...plain } = asked;
  if (compareWith === undefined) return run(asked, ui);
  requireSamples(asked);
  const { output } = asked;
  const own = plain as unknown as R;
  const earlier: RunFiles | undefined = compareWith.kind === 'results' ? findRun(compareWith.path) : undefined;
  const other = compareWith.kind === 'precision' ? baselineOf(asked, compareWith.precision) : undefined;
  if (compareWith.kind === 'precision') await requireBaseline(asked, other!, compareWith.precision);
  // Without a folder of the user's, samples lie in one that is removed.
  const folder = output ?? mkdtempSync(join(tmpdir(), 'tilewright-compare-'));
  if (output === undefined) ui.note('no --out: results are printed, nothing is kept');
  try {
    const result = await run({ ...own, output: folder }, ui);
    const base = async (): Promise<RunFiles> => {
      const name = compareWith.kind === 'precision' ? compareWith.precision : '';
      ui.note(`compared with ${name}: the same questions again`);
      const { resultsPath } = await run({ ...other!, output: join(folder, `compared-with-${name}`) }, ui);
      return findRun(resultsPath!);
    };
    const a = earlier ?? (await base());
    ui.phase('compare', a.file);
    const comparison = compareFiles(a, findRun(result.resultsPath!));
    if (output !== undefined) return written(comparison, result);
    const kept = { ...result, resultsPath: undefined, samplesPath: undefined };
    const here = { path: 'this run', file: '(not kept)' };
    const again = { path: 'the second pass', file: '(not kept)' };
    const named = earlier === undefined ? { ...comparison.a, ...again } : comparison.a;
    return { ...kept, comparison: { ...comparison, a: named, b: { ...comparison.b, ...here } } };
  } finally {
    if (output === undefined) rmSync(folder, { recursive: true, force: true });
  }
}
