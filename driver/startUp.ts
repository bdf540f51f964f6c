/** The time from a command to its first answer: in a line for `--verbose`, and as results and traces keep it. */
import type { StartPhase, StartStep, StartUp } from '../evaluate/startUp.js';
import { defined } from '../system/defined.js';
import { bytes as bytesText } from '../system/text.js';
import { ANSWERS, type PhaseName, StartGraph } from './criticalPath.js';
import type { DeviceExecutor } from './executor.js';
import { type Phases, type PhaseSpan, printPhases } from './phases.js';
import type { Ui } from './requests.js';

/** The phase whose parts move bytes. */
const MOVES: PhaseName = 'weights';
/** Phases in results: those of a hundred processes. */
const MAX_PHASES = 1000;

/** Seconds to a tenth of a millisecond: what clocks of several processes agree on. */
const rounded = (milliseconds: number): number => Math.round(10 * milliseconds) / 10_000;

/** What the parts of a phase moved, and the seconds in which one of them did. */
function movedIn(span: PhaseSpan, recorded: readonly PhaseSpan[]): Pick<StartPhase, 'bytes' | 'movingSeconds'> {
  if (span.name !== MOVES) return {};
  const parts = recorded.filter(
    ({ isPart, bytes = 0, begin, end, replica }) =>
      isPart === true && bytes > 0 && replica === span.replica && begin < span.end && end > span.begin,
  );
  if (parts.length === 0) return {};
  let [moving, last] = [0, span.begin];
  for (const { begin, end } of parts.toSorted((a, b) => a.begin - b.begin)) {
    moving += Math.max(0, Math.min(end, span.end) - Math.max(begin, last));
    last = Math.max(last, Math.min(end, span.end));
  }
  return { bytes: parts.reduce((sum, { bytes = 0 }) => sum + bytes, 0), movingSeconds: rounded(moving) };
}

const COMMAND = 'command';
const DEVICES = 'device process';

/**
 * How the time until the first answer was spent; undefined where there was none. `origin`: when the command began.
 * `devices`: phases of device processes, each with its replica where there are several.
 */
export function startUpOf(
  own: readonly PhaseSpan[],
  devices: readonly PhaseSpan[],
  origin = performance.timeOrigin,
): StartUp | undefined {
  const recorded = withReplicas(own, devices);
  const replicas = new Set(recorded.map(({ replica }) => replica)).size - 1;
  const processOf = ({ replica }: PhaseSpan): string =>
    replica === undefined ? COMMAND : replicas > 1 ? `${DEVICES} ${replica}` : DEVICES;
  const graph = new StartGraph(recorded);
  const { answer } = graph;
  if (answer === undefined || !ANSWERS.includes(answer.name)) return undefined;
  const path = graph.path(origin);
  const onPath = new Set(path.map(({ span }) => span));
  const spares = graph.spares();
  const since = (time: number): number => rounded(time - origin);
  const phases = graph.phases
    .filter(({ begin }) => begin < answer.end)
    .toSorted((a, b) => Number(onPath.has(b)) - Number(onPath.has(a)))
    .slice(0, MAX_PHASES)
    .sort((a, b) => a.begin - b.begin || a.end - b.end);
  return {
    seconds: since(answer.end),
    criticalPath: path.map(({ span, begin, end }): StartStep => ({
      process: span === undefined ? null : processOf(span),
      phase: span === undefined ? null : span.name,
      begin: since(begin),
      seconds: Math.round(1e4 * (since(end) - since(begin))) / 1e4,
    })),
    phases: phases.map((span): StartPhase => {
      const spare = onPath.has(span) ? 0 : spares.get(span);
      return {
        process: processOf(span),
        phase: span.name,
        begin: since(span.begin),
        end: since(span.end),
        ...defined({ spareSeconds: spare === undefined ? undefined : rounded(spare) }),
        ...movedIn(span, recorded),
      };
    }),
  };
}

/** Phases of all processes. Those of a single device process say no replica. */
export const withReplicas = (own: readonly PhaseSpan[], devices: readonly PhaseSpan[]): readonly PhaseSpan[] => [
  ...own,
  ...devices.map((span): PhaseSpan => ({ replica: 0, ...span })),
];

/** Shorter times are not reported. */
const MIN_SECONDS = 0.005;

/**
 * `first answer after 1.43 s: process 0.11, open 0.05, …, first micro-batch 0.14; beside it: kernels 0.31 (0.30 to
 * spare)`. The times before the semicolon add up to the whole.
 */
export function printStartUp({ seconds, criticalPath: path, phases }: StartUp): string {
  const ofCommand = new Set(phases.filter(({ process }) => process === COMMAND).map(({ phase }) => phase));
  const labelOf = ({ process, phase }: Pick<StartStep, 'process' | 'phase'>): string => {
    if (phase === null) return 'not accounted';
    return process !== COMMAND && ofCommand.has(phase) ? `device ${phase}` : phase;
  };
  const keyOf = ({ process, phase }: Pick<StartStep, 'process' | 'phase'>): string => JSON.stringify([process, phase]);
  const known = new Map(phases.map((each) => [keyOf(each), each]));
  // Times are rounded where steps meet, so that those of all steps add up to that of the whole.
  const steps = new Map<string, { readonly step: StartStep; hundredths: number }>();
  for (const step of path) {
    const { begin, seconds: took } = step;
    const entry = steps.get(keyOf(step)) ?? { step, hundredths: 0 };
    entry.hundredths += Math.round(100 * (begin + took)) - Math.round(100 * begin);
    steps.set(keyOf(step), entry);
  }
  const moved = (of: Pick<StartStep, 'process' | 'phase'>): string => {
    const { bytes, movingSeconds = 0 } = known.get(keyOf(of)) ?? {};
    return bytes === undefined ? '' : ` (${bytesText(bytes)} in ${movingSeconds.toFixed(2)})`;
  };
  // What is not known comes last: it may be made of many small gaps.
  const list = [...steps.values()]
    .filter(({ hundredths }) => hundredths > 0)
    .sort((a, b) => Number(a.step.phase === null) - Number(b.step.phase === null))
    .map(({ step, hundredths }) => `${labelOf(step)} ${(hundredths / 100).toFixed(2)}${moved(step)}`);
  const waitedFor = new Set(path.map(({ process }) => process));
  const beside = phases
    .filter((each) => waitedFor.has(each.process) && each.end <= seconds && !steps.has(keyOf(each)))
    .filter(({ begin, end }) => end - begin >= MIN_SECONDS)
    .map((each) => {
      const { begin, end, spareSeconds: spare = 0 } = each;
      const early = spare < MIN_SECONDS ? '' : ` (${spare.toFixed(2)} to spare)`;
      return `${labelOf(each)} ${(end - begin).toFixed(2)}${moved(each)}${early}`;
    });
  const all = `first answer after ${(Math.round(100 * seconds) / 100).toFixed(2)} s: ${list.join(', ')}`;
  return beside.length === 0 ? all : `${all}; beside it: ${beside.join(', ')}`;
}

/** The first answer of a command: when it came, and what it waited for. */
export class FirstAnswer {
  readonly #phases: Phases;
  readonly #ui: Pick<Ui, 'detail'>;
  #state: 'waiting' | 'computing' | 'here' = 'waiting';
  #start: StartUp | undefined;

  constructor(phases: Phases, ui: Pick<Ui, 'detail'>) {
    this.#phases = phases;
    this.#ui = ui;
  }

  /** Absent until the answer is here. */
  get start(): StartUp | undefined {
    return this.#start;
  }

  /** Everything is ready: it is being computed. Only the first such call counts. */
  begin(name: PhaseName & `first ${string}`): void {
    if (this.#state !== 'waiting') return;
    this.#state = 'computing';
    this.#phases.begin(name);
  }

  /** It is here, and is told of. Only the first such call counts. Phases of an executor are of device processes. */
  came({ phases: devices = [] }: Pick<DeviceExecutor, 'phases'>): void {
    if (this.#state !== 'computing') return;
    this.#state = 'here';
    const phases = this.#phases;
    phases.end();
    this.#start = startUpOf(phases.spans, devices);
    if (this.#start !== undefined) this.#ui.detail(printStartUp(this.#start));
    this.#ui.detail(printPhases(phases.spans, devices));
  }

  /** At each progress event of scoring: the first comes when everything is packed, the second with the first answer. */
  onProgress(executor: Pick<DeviceExecutor, 'phases'>): void {
    if (this.#state === 'waiting') this.begin('first micro-batch');
    else this.came(executor);
  }
}
