/** `tune`: replaces an artifact's schedules with the best found within a budget. */
import { isDeepStrictEqual } from 'node:util';
import { gainOf, type TuneRow } from '../../autotune/index.js';
import { deadline, unlessStopped } from '../../autotune/until.js';
import { SCORE } from '../../ir/function.js';
import { withSchedules } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { duration } from '../../system/format.js';
import { quoteForShell } from '../../system/shell.js';
import { UserError } from '../../errors.js';
import { rebuildFor } from '../artifact/manifest.js';
import { keepCheckpoint, prepareArtifact, saveArtifact, type ArtifactParts } from '../artifact/save.js';
import { detectMachine, type Machine } from '../machine.js';
import { isArtifact } from '../names.js';
import { openArtifact } from '../compile/open.js';
import { stepTo, type TuneRequest, type TuneResult, type Ui } from '../requests.js';
import type { CompiledModel, MeasureOptions, Tuned } from '../targets/target.js';

/** The part of the budget reserved for compiling the result: a share of it, and at most this many seconds. */
const CLOSING = { share: 0.1, seconds: 10 };
/** Seconds by which compiling may exceed the budget. */
const GRACE_SECONDS = 1;
/** Milliseconds between progress reports when nothing else happens. */
const TICK_MS = 500;

export async function tuneModel(request: TuneRequest, ui: Ui): Promise<TuneResult> {
  const begin = performance.now();
  if (!isArtifact(request.artifact))
    throw new UserError(
      `${request.artifact}: is not an artifact`,
      `tilewright compile ${quoteForShell(request.artifact)} -o model.tw && tilewright tune model.tw`,
    );
  prepareArtifact(request.artifact);
  const machine = detectMachine();
  ui.phase('open artifact', request.artifact);
  const { model, reference, isPacked } = await openArtifact(request.artifact, machine, ui, {
    checkpoint: request.checkpoint,
  });
  const { budgetSeconds, threads, database, signal } = request;
  const tuning = performance.now();
  const secondsLeft = (): number => Math.max(0, budgetSeconds - (performance.now() - tuning) / 1000);
  ui.phase('tune', `${duration(budgetSeconds)}, ${model.target.isHost ? `${threads} threads` : model.isa}`);
  const { model: tuned, found } = await tuneCompiled(
    model,
    machine,
    {
      budgetSeconds: Math.max(0, secondsLeft() - Math.min(CLOSING.seconds, CLOSING.share * budgetSeconds)),
      threads,
      rebuild: rebuildFor(request.artifact, reference, model.arithmetic),
      ...(database === undefined ? {} : { database }),
      ...(signal === undefined ? {} : { signal }),
    },
    { ui, share: () => (budgetSeconds === 0 ? 1 : 1 - secondsLeft() / budgetSeconds) },
  );
  const kernels = await compileInTime(tuned, secondsLeft() + GRACE_SECONDS, signal, ui);
  const { artifact } = request;
  // An artifact for which nothing better was found keeps its machine code: without new code it stays as it is.
  const isKept = kernels.code === undefined && request.checkpoint === undefined && hasSchedulesOf(tuned, model);
  if (!isKept) {
    await saveArtifact(artifact, {
      reference,
      model: tuned,
      kernels,
      isTuned: true,
      ...(isPacked ? { pack: (dir) => keepCheckpoint(artifact, dir).then(() => reference.contents) } : {}),
    });
  }
  return {
    artifact: request.artifact,
    trials: found.search.trials,
    reused: found.search.reused,
    gain: gainOfLargest(found.search.rows),
    table: found.table,
    seconds: (performance.now() - begin) / 1000,
  };
}

export type TuneOptions = Omit<MeasureOptions, 'onProgress' | 'onActivity' | 'onNote' | 'onWarning'>;

/** The model with the best schedules found, and the measured cost of its buckets. Progress is reported throughout. */
export async function tuneCompiled<S, D>(
  model: CompiledModel<S, D>,
  machine: Machine,
  options: TuneOptions,
  { ui, share }: { readonly ui: Ui; /** Of the time that has passed. */ readonly share: () => number },
): Promise<{ readonly model: CompiledModel<S, D>; readonly found: Tuned<S> }> {
  let status = '';
  let activity = '';
  const tell = (): void => {
    ui.step(Math.min(1, share()), [status, activity].filter((text) => text !== '').join(', '));
  };
  const timer = setInterval(tell, TICK_MS);
  try {
    const found = await model.target.measure(model, machine, {
      ...options,
      onProgress: (table, line) => {
        status = line;
        tell();
        ui.table(table);
      },
      onActivity: (what) => {
        activity = what;
        tell();
      },
      onNote: (line) => ui.note(line),
      onWarning: (line) => ui.warn(line),
    });
    const { schedules, bucketSeconds } = found.search;
    const costs = bucketSeconds.length > 0 ? { bucketSeconds } : {};
    const plan = withSchedules(model.plan, SCORE, { schedules, ...costs });
    return { model: { ...model, plan }, found };
  } finally {
    clearInterval(timer);
  }
}

const hasSchedulesOf = (a: CompiledModel, b: CompiledModel): boolean =>
  a.plan.functions.every(({ schedules }, i) => isDeepStrictEqual(schedules, b.plan.functions[i]?.schedules));

/**
 * Compiles a model's kernels within a number of seconds. Kernels that are not ready by then are compiled by the first
 * run.
 */
async function compileInTime(
  model: CompiledModel,
  seconds: number,
  signal: AbortSignal | undefined,
  ui: Ui,
): Promise<ArtifactParts['kernels']> {
  const isStopped = (): boolean => signal?.aborted === true;
  if (!isStopped()) {
    ui.phase('compile kernels', 'tuned');
    const time = deadline(seconds, signal);
    const code = await unlessStopped(
      model.target.compile(model, {
        signal: time.signal,
        onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
      }),
      time.signal,
    );
    time.end();
    if (code !== undefined) return code;
    if (!isStopped())
      ui.note(
        'the budget is over: the next run compiles the kernels that are left, and schedules that are new have no ' +
          'machine code in the artifact',
      );
  }
  return { sources: model.target.sources(model.plan) };
}

/** Time of a micro-batch of the largest measured bucket with default schedules ÷ with the tuned ones. */
function gainOfLargest(
  all: readonly Pick<TuneRow<unknown>, 'bucket' | 'count' | 'bestSeconds' | 'defaultSeconds'>[],
): number {
  const measured = all.filter((row) => gainOf(row) !== undefined);
  const largest = Math.max(0, ...measured.map((row) => tokensIn(row.bucket)));
  const rows = measured.filter((row) => tokensIn(row.bucket) === largest);
  const total = (seconds: (row: (typeof rows)[number]) => number): number =>
    rows.reduce((sum, row) => sum + row.count * seconds(row), 0);
  const best = total((row) => row.bestSeconds ?? 0);
  return best > 0 ? total((row) => row.defaultSeconds ?? 0) / best : 1;
}
