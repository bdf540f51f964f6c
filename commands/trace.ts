/**
 * `--trace FILE`: how a command started, a run on all its devices, and some micro-batches kernel by kernel, in Chrome's
 * trace format (Perfetto opens it). What a report needs beside the events is in `otherData`.
 */
import { type Peaks, ratesOf } from '../autotune/peaks.js';
import { rebuildOpened } from '../driver/compile/open.js';
import { cutsOf } from '../driver/devices/loadReplica.js';
import type { Phases } from '../driver/phases.js';
import { arithmeticName } from '../driver/precision.js';
import { VERSION } from '../driver/program.js';
import { withReplicas } from '../driver/startUp.js';
import type { StartUp } from '../evaluate/startUp.js';
import { linkFunction, scoreOf, stateBytes } from '../ir/plan.js';
import { TRACE_FORMAT, type TraceFacts } from '../report/document/machine.js';
import { defined } from '../system/defined.js';
import { writeAtomically } from '../system/write.js';
import { type CallWork, launchWorks, sizeOfCall, StageWork } from './callWork.js';
import { arenaBuffers, weightBytes } from './inspectKernels.js';
import type { LoadedModel } from './loadModel.js';
import { profiledCalls } from './profiledCalls.js';
import type { PackedQuestions } from './questionSet.js';
import type { PlanScorer } from './scorer.js';
import {
  type BatchSpan,
  namesOf,
  type Slice,
  startupEvents,
  timelineEvents,
  type TraceEvent,
  workArgs,
} from './traceEvents.js';

/** Number of micro-batches that are profiled: enough to see past the first, cold one. */
const TRACED_BATCHES = 3;

/** What is traced. */
export interface Traced {
  readonly model: LoadedModel;
  /** As the user named it, for a command that builds it again. */
  readonly modelPath: string;
  readonly modelName: string;
  readonly threads: number;
  readonly phases: Phases;
  /** What the first answer waited for; undefined where there is none. */
  readonly start: StartUp | undefined;
  readonly scorer: PlanScorer;
  /** Some of these are computed once more, launch by launch; absent if nothing was scored or the run was stopped. */
  readonly questions: PackedQuestions | undefined;
}

/** The work of a stage in a call that a span belongs to. */
function workOfSpans({ model, modelPath }: Traced, peaks: Peaks): (span: BatchSpan) => CallWork | undefined {
  const { plan } = model.model;
  const { stages } = model.parallelism;
  const cuts = cutsOf(model.model, model.parallelism, rebuildOpened(modelPath, model));
  const known = new Map<string, StageWork>();
  return ({ device, call }) => {
    if (call === undefined) return undefined;
    const stage = device % stages;
    const key = `${call.function} ${stage}`;
    let work = known.get(key);
    if (work === undefined) {
      const fn = linkFunction(plan, call.function);
      const range = cuts?.[call.function]?.[stage] ?? { first: 0, end: fn.kernels.length };
      known.set(key, (work = new StageWork(fn, range, ratesOf(peaks))));
    }
    return work.of(call.size);
  };
}

/**
 * Runs a few micro-batches of the question set again and times each launch. Their slices form a process of their own,
 * from `from` microseconds on.
 */
async function profileEvents(
  { model, questions, scorer }: Traced,
  peaks: Peaks,
  { from, pid }: { readonly from: number; readonly pid: number },
): Promise<readonly TraceEvent[]> {
  if (questions === undefined) return [];
  const events: TraceEvent[] = namesOf(pid, 'kernels, timed one by one after the run', ['kernels']);
  let now = from;
  const calls = await profiledCalls(model, questions, scorer, TRACED_BATCHES);
  for (const [number, { function: name, inputs, batch }] of calls.entries()) {
    const fn = linkFunction(model.model.plan, name);
    const works = launchWorks(fn, sizeOfCall(fn.interface, inputs, batch), ratesOf(peaks));
    const { launches } = await model.executor.profile(name, inputs);
    launches.forEach(({ path, nanoseconds }, i) => {
      const slice: Slice = {
        name: path,
        cat: 'kernel',
        ph: 'X',
        ts: now,
        dur: nanoseconds / 1000,
        pid,
        tid: 1,
        args: {
          function: name,
          tokens: batch.tokens.length,
          rows: batch.row.length,
          batch: number,
          ...(fn.kernels[i]?.path === path ? workArgs(works[i]!, nanoseconds / 1e9) : {}),
        },
      };
      events.push(slice);
      now += slice.dur;
    });
  }
  return events;
}

/** Writes the trace of a run. */
export async function traceRun(path: string, traced: Traced): Promise<void> {
  const { model, phases, scorer, threads, modelPath } = traced;
  const { devices, executor, parallelism } = model;
  const { target, device } = model.model;
  const { timeline } = scorer;
  const origin = performance.timeOrigin;
  const end = timeline.window?.end ?? Math.max(...phases.spans.map((span) => span.end));
  const rebuild = rebuildOpened(modelPath, model);
  const peaks = await target.devices.peaks(device, { threads: Math.max(1, Math.floor(threads / devices)), rebuild });
  const kernels = await profileEvents(traced, peaks, { from: (end - origin) * 1000, pid: devices + 1 });
  const spans = withReplicas(phases.spans, executor.phases ?? []);
  writeTrace(path, traceFacts(traced, peaks), [
    ...startupEvents(spans, { origin, pid: devices + 2, stages: parallelism.stages }),
    ...timelineEvents(timeline, devices, { origin, workOf: workOfSpans(traced, peaks) }),
    ...kernels,
  ]);
}

function* traceText(facts: TraceFacts, events: readonly TraceEvent[]): Generator<string> {
  yield `{"displayTimeUnit":"ms","otherData":${JSON.stringify({ tilewright: facts })},"traceEvents":[\n`;
  for (const [i, event] of events.entries()) yield `${JSON.stringify(event)}${i === events.length - 1 ? '' : ','}\n`;
  yield ']}\n';
}

const writeTrace = (path: string, facts: TraceFacts, events: readonly TraceEvent[]): void =>
  writeAtomically(path, traceText(facts, events));

/** Kernels and buffers of the largest plans, several times. */
const MAX_ENTRIES = 20_000;

export function traceFacts(
  {
    model: loaded,
    modelName,
    start,
  }: { readonly model: LoadedModel; readonly modelName: string; readonly start: StartUp | undefined },
  peaks: Peaks,
): TraceFacts {
  const { model, checkpoint, parallelism } = loaded;
  const score = scoreOf(model.plan);
  const weights = weightBytes(score, checkpoint);
  return {
    format: TRACE_FORMAT,
    version: VERSION,
    model: modelName,
    isa: model.isa,
    arithmetic: arithmeticName(model),
    replicas: parallelism.replicas,
    stages: parallelism.stages,
    peaks,
    ...defined({ start }),
    kernels: score.kernels
      .slice(0, MAX_ENTRIES)
      .map(({ path, anchor }, i) => ({ path, anchor, signature: score.launches[i]!.signature })),
    memory: {
      arenaBytes: score.arenaBytes,
      buffers: arenaBuffers(score).slice(0, MAX_ENTRIES),
      states: model.plan.states.map((state) => ({
        name: state.name,
        bytes: stateBytes(state, model.cacheTokens ?? 0),
      })),
      ...defined({ weights }),
    },
  };
}
