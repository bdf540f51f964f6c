/** `tune`: replaces an artifact's schedules with the best found within a budget. */
import { isDeepStrictEqual } from 'node:util';
import { type Alarm, deadline, realAlarm, unlessStopped } from '../autotune/measurement.js';
import type { TuneRow } from '../autotune/searchJob.js';
import { gainOf } from '../autotune/table.js';
import { rebuildFor } from '../driver/artifact/manifest.js';
import { keepCheckpoint, prepareArtifact, saveArtifact } from '../driver/artifact/save.js';
import { openArtifact, type OpenedModel } from '../driver/compile/open.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { isArtifact } from '../driver/names.js';
import { stepTo, type Ui } from '../driver/requests.js';
import { detectMachine, type Machine } from '../driver/targets/cpuDevice.js';
import { storedCode } from '../driver/targets/machineCode.js';
import type { CompiledModel, MachineCode, Tuned, TunerOptions } from '../driver/targets/target.js';
import { UserError } from '../errors.js';
import { SCORE } from '../ir/function.js';
import { linkFunction, withSchedules } from '../ir/plan.js';
import { at } from '../system/at.js';
import { tokensIn } from '../ir/scoring.js';
import { defined } from '../system/defined.js';
import { quoteForShell } from '../system/process.js';
import { counted, duration } from '../system/text.js';

export interface TuneRequest {
  /** Artifact folder; its schedules are replaced. */
  readonly artifact: string;
  /** Folder of its checkpoint, if it has moved; the artifact names it from then on. */
  readonly checkpoint?: string;
  readonly budgetSeconds: number;
  readonly threads: number;
  /** JSON-lines database; default: in the cache folder. */
  readonly database?: string;
  readonly signal?: AbortSignal;
}

/** What tuning has found for one function of a model: `score`, and `step` where it is compiled with a cache. */
export interface TunedFunction {
  readonly name: string;
  readonly trials: number;
  readonly reused: number;
  /** Time of the measured kernels of the largest measured bucket, default ÷ tuned; 1 if nothing was gained. */
  readonly gain: number;
}

export interface TuneResult {
  readonly artifact: string;
  /** Of all functions. */
  readonly trials: number;
  readonly reused: number;
  /** That of `score`. */
  readonly gain: number;
  readonly functions: readonly TunedFunction[];
  /** False if the budget ended before the machine code of new schedules was compiled: the artifact is as it was. */
  readonly isSaved: boolean;
  readonly table: readonly string[];
  readonly seconds: number;
}

/** Milliseconds between progress reports when nothing else happens. */
const TICK_MS = 500;

/** Artifact → the same artifact with the best schedules found within a time budget. */
export async function tune(request: TuneRequest, ui: Ui): Promise<TuneResult> {
  const begin = performance.now();
  const { artifact, budgetSeconds, threads, database, signal } = request;
  if (!isArtifact(artifact))
    throw new UserError(
      `${artifact}: is not an artifact`,
      `tilewright compile ${quoteForShell(artifact)} -o model.tw && tilewright tune model.tw`,
    );
  await settleTarget({ model: artifact, init: { kind: 'checkpoint' } }, ui);
  prepareArtifact(artifact);
  const machine = detectMachine();
  ui.phase('open artifact', artifact);
  const opened = await openArtifact(artifact, machine, ui, { checkpoint: request.checkpoint });
  const { model, reference } = opened;
  const tuning = performance.now();
  const share = (): number => (budgetSeconds === 0 ? 1 : (performance.now() - tuning) / 1000 / budgetSeconds);
  const tuned = await tuneWithin(
    model,
    { budgetSeconds, closingSeconds: model.target.tuner.compileSeconds?.(model.plan) ?? 0, signal },
    {
      isSame: hasSameSchedules,
      compile: (each, stop) => {
        ui.phase('compile kernels', each === model ? 'as they are' : 'tuned');
        return model.target.compiler.compile(each, {
          signal: stop,
          onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
        });
      },
      search: (seconds) => {
        ui.phase(
          'tune',
          `${duration(seconds)}, ${model.target.devices.isHost ? counted(threads, 'thread') : model.isa}`,
        );
        const options = {
          budgetSeconds: seconds,
          threads,
          rebuild: rebuildFor(artifact, reference, model),
          ...defined({ database, signal }),
        };
        return tuneCompiled(model, machine, options, { ui, share });
      },
    },
  );
  const { found } = tuned;
  const isSaved = await save(request, opened, tuned, ui);
  const functions = found.functions.map(({ name, search: { trials, reused, rows } }) => ({
    name,
    trials,
    reused,
    gain: gainOfLargest(rows),
  }));
  return {
    artifact,
    trials: functions.reduce((sum, { trials }) => sum + trials, 0),
    reused: functions.reduce((sum, { reused }) => sum + reused, 0),
    gain: functions.find(({ name }) => name === SCORE)?.gain ?? 1,
    functions,
    isSaved,
    table: found.table,
    seconds: (performance.now() - begin) / 1000,
  };
}

/**
 * Writes the artifact, unless it stays as it is. An artifact that has machine code takes new schedules only with
 * theirs. False if schedules were found that it did not take.
 */
async function save(
  { artifact, checkpoint, budgetSeconds, signal }: TuneRequest,
  { model: before, reference, isPacked, packed }: OpenedModel,
  { model, code, isSame }: Pick<TunedWithin<CompiledModel, unknown, MachineCode>, 'model' | 'code' | 'isSame'>,
  ui: Ui,
): Promise<boolean> {
  const pack = isPacked
    ? { pack: (dir: string) => keepCheckpoint(artifact, dir).then(() => reference.contents) }
    : undefined;
  const hasCode = packed?.record !== undefined;
  if (code === undefined && hasCode) {
    if (!isSame && signal?.aborted !== true)
      ui.note(
        `the budget of ${duration(budgetSeconds)} is over before the machine code of new schedules is compiled: ` +
          `the artifact keeps the old ones, which have theirs; what was measured is kept, so tune again`,
      );
    if (checkpoint !== undefined) {
      const kernels = { sources: before.target.compiler.sources(before.plan) };
      const stored = storedCode(packed);
      await saveArtifact(artifact, { reference, model: before, kernels, stored, isTuned: true, ...pack });
    }
    return isSame;
  }
  const kernels = code ?? { sources: model.target.compiler.sources(model.plan) };
  await saveArtifact(artifact, { reference, model, kernels, isTuned: true, ...pack });
  return true;
}

export type TuneOptions = Omit<TunerOptions, 'onProgress' | 'onActivity' | 'onNote' | 'onWarning'>;

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
    const found = await model.target.tuner.tune(model, machine, {
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
    const { settle } = model.target.compiler.scheduling;
    const plan = found.functions.reduce((whole, { name, search: { schedules, bucketSeconds } }) => {
      const costs = bucketSeconds.length > 0 ? { bucketSeconds } : {};
      const { buckets, launches, ...fn } = linkFunction(whole, name);
      const settled = schedules.map((each, i) => settle?.(fn, launches, each, at(buckets, i)) ?? each);
      return withSchedules(whole, name, { schedules: settled, ...costs });
    }, model.plan);
    return { model: { ...model, plan }, found };
  } finally {
    clearInterval(timer);
  }
}

const hasSameSchedules = (a: CompiledModel, b: CompiledModel): boolean =>
  a.plan.functions.every(({ schedules }, i) => isDeepStrictEqual(schedules, b.plan.functions[i]?.schedules));

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

/**
 * The part of the budget that is reserved for compiling the result: a share of it, of at most `seconds`, or what
 * compiling is expected to take, up to a larger share.
 */
const CLOSING = { share: 0.1, seconds: 10, maxShare: 0.5 };
/** Seconds by which compiling may exceed the budget, and those it may take after Ctrl-C. */
export const GRACE_SECONDS = 1;

export interface Time {
  /** Seconds, never going back. */
  now(): number;
  readonly alarm: Alarm;
}

const realTime: Time = { now: () => performance.now() / 1000, alarm: realAlarm };

export interface Steps<M, F, K> {
  /** Machine code of a model. Ends when the signal is aborted. */
  compile(model: M, signal: AbortSignal): Promise<K>;
  /** Searches for at most `budgetSeconds`. */
  search(budgetSeconds: number): Promise<{ readonly model: M; readonly found: F }>;
  /** Whether both models have the same kernels. */
  isSame(a: M, b: M): boolean;
}

export interface TunedWithin<M, F, K> {
  readonly model: M;
  readonly found: F;
  /** Machine code of the model; undefined if it was not compiled in time. */
  readonly code: K | undefined;
  /** Whether the schedules are those that the model had before. */
  readonly isSame: boolean;
}

/**
 * Compiles the model as it is before anything is measured. Where each kernel is compiled by itself, most of the result
 * are then compiled already: those that keep their schedules here, and those that do not when they are measured.
 */
export async function tuneWithin<M, F, K>(
  before: M,
  {
    budgetSeconds,
    closingSeconds = 0,
    signal,
    time = realTime,
  }: {
    readonly budgetSeconds: number;
    /** What compiling the result is expected to take. */
    readonly closingSeconds?: number;
    readonly signal?: AbortSignal | undefined;
    readonly time?: Time;
  },
  { compile, search, isSame }: Steps<M, F, K>,
): Promise<TunedWithin<M, F, K>> {
  const begin = time.now();
  const secondsLeft = (): number => Math.max(0, budgetSeconds - (time.now() - begin));
  const within = async (model: M, seconds: number, stop: AbortSignal | undefined): Promise<K | undefined> => {
    const limit = deadline(seconds, stop, time.alarm);
    try {
      return await unlessStopped(compile(model, limit.signal), limit.signal);
    } finally {
      limit.end();
    }
  };
  const reserved = Math.max(
    Math.min(CLOSING.seconds, CLOSING.share * budgetSeconds),
    Math.min(closingSeconds, CLOSING.maxShare * budgetSeconds),
  );
  const own = await within(before, secondsLeft() - reserved, signal);
  const { model, found } = await search(Math.max(0, secondsLeft() - reserved));
  if (isSame(model, before)) return { model, found, code: own, isSame: true };
  const isStopped = signal?.aborted === true;
  const code = await within(model, (isStopped ? 0 : secondsLeft()) + GRACE_SECONDS, isStopped ? undefined : signal);
  return { model, found, code, isSame: false };
}
