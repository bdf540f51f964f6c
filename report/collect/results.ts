/** The section of results: a run's figures, their breakdowns, and what the run took. */
import type { Block, GroupFiles, RunFiles } from '../../evaluate/compare/findRuns.js';
import type { Answered } from '../../evaluate/compare/readSamples.js';
import { isRecord } from '../../system/json.js';
import { count } from '../../system/text.js';
import type {
  Breakdown,
  Calibration,
  DeviceShare,
  Figure,
  Interval,
  Margins,
  ResultsDocument,
  RunCost,
  RunResult,
  Slice,
  TaskResult,
} from '../document/results.js';
import { binaryMetrics, chosenOf, type LoadedRun, type LoadedTask, marginOf, metricName } from './loadRuns.js';
import { startSchema } from './start.js';

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

/** The accuracy of a task by the length of its contexts and by categories of its documents. */

const MAX_METRICS = 2;
const MAX_FIELDS = 4;
const MAX_SLICES = 200;
const LENGTH_SLICES = 8;
/** With fewer questions an interval says nothing. */
const MIN_QUESTIONS = 20;

/** Questions of each slice, as places in the order of the file. */
type Members = readonly { readonly label: string; readonly members: readonly number[] }[];

function slicesOf({ set }: LoadedTask, metrics: readonly { readonly place: number }[], all: Members): Slice[] {
  const questions = [...set.questions.values()];
  return all.map(({ label, members }) => {
    const right = metrics.map(({ place }) => members.filter((member) => questions[member]!.items[place] === 1).length);
    return {
      label,
      questions: members.length,
      right,
      shares: right.map((each) => each / members.length),
      intervals: right.map((each) => wilson(each, members.length)),
    };
  });
}

/** Parts of about equal numbers of questions, in order of length; equal lengths are in one part. */
function byLength(lengths: readonly number[]): Members {
  const order = lengths.map((_, i) => i).sort((a, b) => lengths[a]! - lengths[b]!);
  const parts: number[][] = [];
  const wanted = Math.min(LENGTH_SLICES, Math.floor(order.length / MIN_QUESTIONS));
  let from = 0;
  for (let part = 1; part <= wanted; part++) {
    let to = Math.round((part * order.length) / wanted);
    while (to < order.length && to > 0 && lengths[order[to]!] === lengths[order[to - 1]!]) to++;
    if (to > from) parts.push(order.slice(from, to));
    from = Math.max(from, to);
  }
  return parts.map((members) => {
    const [least, most] = [lengths[members[0]!]!, lengths[members.at(-1)!]!];
    return { label: least === most ? count(least) : `${count(least)}–${count(most)}`, members };
  });
}

function byCategory({ values, places }: LoadedTask['categories'][number]): Members {
  const members: number[][] = values.map(() => []);
  places.forEach((place, question) => {
    if (place >= 0) members[place]!.push(question);
  });
  return values
    .map((label, i) => ({ label, members: members[i]! }))
    .sort((a, b) => b.members.length - a.members.length || (a.label < b.label ? -1 : 1));
}

/** None where no metric says of each question whether it is right. */
export function breakdownsOf(task: string, loaded: LoadedTask): Breakdown[] {
  const metrics = binaryMetrics(loaded.set).slice(0, MAX_METRICS);
  if (metrics.length === 0) return [];
  const about = { task, metrics: metrics.map(({ key }) => metricName(key)) };
  const lengths = byLength(loaded.lengths);
  const ofLength: Breakdown[] =
    lengths.length < 2
      ? []
      : [
          {
            ...about,
            by: 'length',
            kind: 'length',
            left: { slices: 0, questions: 0 },
            slices: slicesOf(loaded, metrics, lengths),
          },
        ];
  const ofCategories = loaded.categories.slice(0, MAX_FIELDS).map((category): Breakdown => {
    const all = byCategory(category);
    const left = all.slice(MAX_SLICES);
    return {
      ...about,
      by: category.field,
      kind: 'category',
      slices: slicesOf(loaded, metrics, all.slice(0, MAX_SLICES)),
      left: { slices: left.length, questions: left.reduce((sum, { members }) => sum + members.length, 0) },
    };
  });
  return [...ofLength, ...ofCategories];
}

/** How probable choices are beside how often they are right, and how far right choices lead. */

/** A question whose right choice is known. */
interface Judged {
  readonly answered: Answered;
  readonly gold: number;
}

/** The questions of tasks whose right choice is known. */
const judgedOf = (tasks: readonly LoadedTask[]): Judged[] =>
  tasks.flatMap(({ set, golds }) =>
    [...set.questions.values()].flatMap((answered, i) => (golds[i]! < 0 ? [] : [{ answered, gold: golds[i]! }])),
  );

const BINS = 10;
const CLOSE = 0.5;
const MARGIN_BINS = 40;

/** The share of the largest in the softmax of log-likelihoods. */
export function confidenceOf(lls: Float64Array, chosen: number): number {
  let sum = 0;
  for (const each of lls) sum += Math.exp(each - lls[chosen]!);
  return 1 / sum;
}

/** Of one task, or of several as one. Undefined where no question has choices of which the right one is known. */
export function calibrationOf(name: string, tasks: readonly LoadedTask[]): Calibration | undefined {
  const bins = Array.from({ length: BINS }, () => ({ questions: 0, right: 0, confidence: 0 }));
  let questions = 0;
  for (const { answered, gold } of judgedOf(tasks)) {
    const chosen = chosenOf(answered);
    if (chosen < 0) continue;
    const confidence = confidenceOf(answered.lls!.subarray(0, answered.choices), chosen);
    if (!Number.isFinite(confidence)) continue;
    const bin = bins[Math.min(BINS - 1, Math.floor(confidence * BINS))]!;
    bin.questions++;
    bin.confidence += confidence;
    if (chosen === gold) bin.right++;
    questions++;
  }
  if (questions === 0) return undefined;
  return {
    task: name,
    questions,
    ece: bins.reduce((sum, { right, confidence }) => sum + Math.abs(right - confidence), 0) / questions,
    bins: bins.map((bin, i) => ({
      from: i / BINS,
      to: (i + 1) / BINS,
      questions: bin.questions,
      confidence: bin.questions === 0 ? 0 : bin.confidence / bin.questions,
      accuracy: bin.questions === 0 ? 0 : bin.right / bin.questions,
      interval: wilson(bin.right, bin.questions),
    })),
  };
}

/** 1, 2 or 5 times a power of ten, at least `least`. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * (1 - 1e-9)) ?? 10 * power;
}

/** Undefined where no question has a margin. All but one in a hundred at each end lie in bins of their own. */
export function marginsOf(name: string, tasks: readonly LoadedTask[]): Margins | undefined {
  const all = judgedOf(tasks).flatMap(({ answered, gold }) => marginOf(answered, gold) ?? []);
  if (all.length === 0) return undefined;
  const sorted = Float64Array.from(all).sort();
  const at = (share: number): number => sorted[Math.round(share * (sorted.length - 1))]!;
  const reach = Math.max(Math.abs(at(0.01)), Math.abs(at(0.99)), 1e-6);
  const step = roundStep((2 * reach) / MARGIN_BINS);
  const half = Math.ceil(reach / step);
  const counts = new Array<number>(2 * half).fill(0);
  for (const margin of all) counts[Math.min(2 * half - 1, Math.max(0, Math.floor(margin / step) + half))]!++;
  return {
    task: name,
    questions: all.length,
    median: at(0.5),
    close: all.filter((margin) => Math.abs(margin) < CLOSE).length,
    bins: counts.map((questions, i) => ({ from: (i - half) * step, to: (i - half + 1) * step, questions })),
  };
}

/** Intervals of single figures; those of differences are in evaluate/compare. */

/** 97.5 % of the normal distribution. */
const Z = 1.959963984540054;

/** 95 % interval of a share, `right` of `n`, by Wilson's score: it stays within 0 and 1, and has a width at both. */
export function wilson(right: number, n: number): Interval {
  if (n === 0) return [0, 1];
  const share = right / n;
  const middle = (share + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt((share * (1 - share)) / n + Z ** 2 / (4 * n ** 2));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** 95 % interval by a standard error. */
export const byError = (value: number, error: number): Interval => [value - Z * error, value + Z * error];

/** Figures of tasks and groups from results_*.json, in the order of the tree of groups. */

const MAX_FIGURES = 40;
const MAX_DEPTH = 50;
/** Metrics of which every question is right or wrong; the others' files do not say. */
const ARE_SHARES =
  /^(acc|acc_norm|acc_bytes|acc_mutual_info|exact_match|pass@\d+|mc[12]|em|f1|prompt_level_.*_acc|inst_level_.*_acc)$/;
const IS_BINARY = /^(acc|acc_norm|acc_bytes|acc_mutual_info|exact_match)$/;

const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;

/** A share of all questions, when what is right is a whole number of them. */
function intervalOf(metric: string, value: number, error: number | null, questions: number | null, isTask: boolean) {
  const right = value * (questions ?? NaN);
  const isCount = Math.abs(right - Math.round(right)) < 1e-6 * Math.max(1, right);
  if (isTask && IS_BINARY.test(metric) && isCount && value >= 0 && value <= 1)
    return wilson(Math.round(right), questions!);
  return error === null ? null : byError(value, error);
}

function figuresOf(block: Block, better: Block, questions: number | null, isTask: boolean): Figure[] {
  const figures: Figure[] = [];
  for (const [key, value] of Object.entries(block)) {
    const [, metric, filter] = /^(.{1,200}?)(?<!_stderr),(.{1,200})$/s.exec(key) ?? [];
    if (metric === undefined || filter === undefined || figures.length >= MAX_FIGURES) continue;
    const number = numberOf(value);
    if (number === null) continue;
    const error = numberOf(block[`${metric}_stderr,${filter}`]);
    const isBetter = Object.hasOwn(better, metric) ? better[metric] : undefined;
    figures.push({
      metric,
      filter,
      value: number,
      error,
      interval: intervalOf(metric, number, error, questions, isTask),
      isShare: ARE_SHARES.test(metric) && number >= 0 && number <= 1,
      isHigherBetter: typeof isBetter === 'boolean' ? isBetter : null,
    });
  }
  return figures;
}

const questionsOf = (figures: Block): number | null => numberOf(figures['sample_len']);

/** Groups before their members, each with its depth; tasks in no group as they come. */
export function taskResultsOf(run: RunFiles): TaskResult[] {
  const { tasks, groups, content } = run;
  const found: TaskResult[] = [];
  const seen = new Set<string>();
  const better: Block = isRecord(content['higher_is_better']) ? content['higher_is_better'] : {};
  const visit = (name: string, depth: number): void => {
    if (seen.has(name) || depth > MAX_DEPTH) return;
    seen.add(name);
    const group: GroupFiles | undefined = groups.get(name);
    const task = tasks.get(name);
    const figures = group?.figures ?? task?.figures;
    if (figures === undefined) return;
    const questions = questionsOf(figures);
    const ofGroup = better[name];
    const isBetter = task?.isHigherBetter ?? (isRecord(ofGroup) ? ofGroup : {});
    found.push({
      task: name,
      depth,
      kind: group === undefined ? 'task' : 'group',
      questions,
      shots: numberOf(task?.shots),
      figures: figuresOf(figures, isBetter, questions, group === undefined),
    });
    for (const member of group?.members ?? []) visit(member, depth + 1);
  };
  const members = new Set([...groups.values()].flatMap((group) => group.members));
  for (const name of [...groups.keys(), ...tasks.keys()]) if (!members.has(name)) visit(name, 0);
  // Groups in a circle have no outermost one.
  for (const name of [...groups.keys(), ...tasks.keys()]) visit(name, 0);
  return found;
}

/** What a run took and how it was set, from results_*.json. Files are untrusted: numbers are numbers or left out. */

const MAX_DEVICES = 256;
const MAX_SETTINGS = 40;
const MAX_CHARACTERS = 200;

const numberIn = (block: Block, name: string): number | null => {
  const value = block[name];
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
};

function deviceOf(value: unknown): readonly DeviceShare[] {
  if (!isRecord(value)) return [];
  const [device, computeSeconds, copySeconds, busyShare] = [
    ...['device', 'computeSeconds', 'copySeconds', 'busyShare'].map((name) => numberIn(value, name)),
  ] as [number | null, number | null, number | null, number | null];
  if (device === null || computeSeconds === null || busyShare === null) return [];
  return [{ device, computeSeconds, copySeconds: copySeconds ?? 0, busyShare }];
}

const COUNTS = [
  'questions',
  'tokensComputed',
  'tokensWithoutSharing',
  'tokensGrouped',
  'tokensShared',
  'loadSeconds',
  'scoreSeconds',
  'questionsPerSecond',
  'tokensPerSecond',
  'modelFlops',
] as const;

/** Null where the file has no throughput block, as those of lm-evaluation-harness. */
export function costOf({ content }: RunFiles): RunCost | null {
  const block = content['throughput'];
  if (!isRecord(block)) return null;
  const counts = Object.fromEntries(COUNTS.map((name) => [name, numberIn(block, name)]));
  const devices: readonly unknown[] = Array.isArray(block['devices']) ? block['devices'] : [];
  return {
    ...(counts as unknown as Omit<RunCost, 'devices' | 'start'>),
    devices: devices.slice(0, MAX_DEVICES).flatMap(deviceOf),
    // Earlier versions and shards that were merged have none.
    start: startSchema.safeParse(block['start']).data ?? null,
  };
}

const shown = (value: unknown): string | undefined => {
  const text =
    typeof value === 'string'
      ? value
      : typeof value === 'number' || typeof value === 'boolean'
        ? String(value)
        : Array.isArray(value)
          ? JSON.stringify(value)
          : undefined;
  if (text === undefined || text === '') return undefined;
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}…` : text;
};

/** What decides how a run computes, then what it was given. */
export function settingsOf({ content, model, arithmetic }: RunFiles): (readonly [string, string])[] {
  const config: Block = isRecord(content['config']) ? content['config'] : {};
  const provenance: Block = isRecord(content['provenance']) ? content['provenance'] : {};
  const date = numberIn(content, 'date');
  const all: (readonly [string, unknown])[] = [
    ['model', model],
    ['arithmetic', arithmetic],
    ...Object.entries(config).filter(([name]) => name !== 'arithmetic' && name !== 'model'),
    ['date', date === null || date < 0 || date > 1e11 ? undefined : new Date(date * 1000).toISOString()],
    ['written by', content['model_source'] === 'tilewright' ? `tilewright ${String(content['git_hash'])}` : undefined],
    ['seconds in all', content['total_evaluation_time_seconds']],
    ...Object.entries(provenance),
  ];
  return all
    .flatMap(([name, value]) => {
      const text = shown(value);
      return text === undefined ? [] : [[name.slice(0, MAX_CHARACTERS).replaceAll('_', ' '), text] as const];
    })
    .slice(0, MAX_SETTINGS);
}
