/** Tuning records for the page: trials by machine, kernel and bucket, beside the default and the vendor's library. */
import { resolve } from 'node:path';
import { ratesOf, rooflineSeconds } from '../../autotune/peaks.js';
import { median, winnerOf } from '../../autotune/records.js';
import { defined } from '../../system/defined.js';
import { count, counted } from '../../system/text.js';
import type {
  Bench,
  TuningDocument,
  TuningJob,
  TuningMachine,
  TuningResult,
  VendorBaseline,
} from '../document/tuning.js';
import { shortNames } from './shortNames.js';
import { isBench, type MachineFacts, readBench, readTuningFile, type TuningLine } from './tuningLines.js';

type Line<K extends TuningLine['kind']> = Extract<TuningLine, { readonly kind: K }>;
type Trial = Line<'trial'>;

/** Equal for equal values, whatever the order of their fields. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, each]) => [name, canonical(each)]),
  );
}
const textOf = (value: unknown): string => JSON.stringify(canonical(value));

const MAX_TEXT = 200;
/** `gemm avx512 mr 14 nr 32`: the values of texts, names and values of numbers. */
function scheduleText(schedule: unknown): string {
  if (typeof schedule !== 'object' || schedule === null) return '–';
  const part = ([name, value]: [string, unknown]): string =>
    typeof value === 'string' ? value : `${name} ${typeof value === 'object' ? JSON.stringify(value) : String(value)}`;
  return Object.entries(schedule).map(part).join(' ').slice(0, MAX_TEXT);
}

const bucketText = ({ extents, longest, run }: Trial['bucket']): string =>
  [
    Object.entries(extents)
      .map(([name, value]) => `${count(value)} ${name}`)
      .join(', '),
    ...(longest > 1 ? [`paths to ${count(longest)}`] : []),
    ...(run === undefined ? [] : [`run ${run}`]),
  ].join(', ');

/** The records of one kernel and bucket on one machine. */
class JobRecords {
  /** By schedule: the newest time; Infinity where it failed. */
  readonly known = new Map<string, TuningResult>();
  readonly bucket: Trial['bucket'];
  readonly key: string;
  about: Line<'job'> | undefined;
  trials = 0;
  failures = 0;

  constructor(key: string, bucket: Trial['bucket']) {
    this.key = key;
    this.bucket = bucket;
  }

  add({ schedule, seconds }: Trial): void {
    this.trials++;
    if (seconds.length === 0) this.failures++;
    const result = { schedule: scheduleText(schedule), seconds: seconds.length === 0 ? Infinity : median(seconds) };
    this.known.set(textOf(schedule), result);
  }

  get best(): TuningResult | undefined {
    let best: TuningResult | undefined;
    for (const each of this.known.values()) if (each.seconds < (best?.seconds ?? Infinity)) best = each;
    return best;
  }

  get standard(): TuningResult | undefined {
    const known = this.about && this.known.get(textOf(this.about.job.schedule));
    return known !== undefined && Number.isFinite(known.seconds) ? known : undefined;
  }
}

/** Everything that was measured on one machine. */
class MachineRecords {
  readonly facts: MachineFacts;
  readonly jobs = new Map<string, JobRecords>();
  readonly trials: { readonly job: JobRecords; readonly trial: Trial }[] = [];
  readonly finals: Line<'final'>[] = [];
  peaks: Line<'peaks'> | undefined;

  constructor(facts: MachineFacts) {
    this.facts = facts;
  }

  jobAt(key: string, bucket: Trial['bucket']): JobRecords {
    const place = textOf([key, bucket]);
    const job = this.jobs.get(place) ?? new JobRecords(key, bucket);
    this.jobs.set(place, job);
    return job;
  }

  add(line: Exclude<TuningLine, Line<'rival'>>): void {
    switch (line.kind) {
      case 'trial': {
        const job = this.jobAt(line.key, line.bucket);
        job.add(line);
        this.trials.push({ job, trial: line });
        return;
      }
      case 'job':
        this.jobAt(line.key, line.bucket).about = line;
        return;
      case 'final':
        this.finals.push(line);
        return;
      case 'peaks':
        this.peaks = line;
        return;
      default:
        return line satisfies never;
    }
  }
}

const nameOf = (facts: MachineFacts): string =>
  [
    facts['cpu'] ?? facts['gpu'] ?? 'a machine',
    ...[facts['isa'] ?? facts['arch'] ?? []].flat(),
    ...(facts['threads'] === undefined ? [] : [counted(Number(facts['threads']), 'thread')]),
  ].join(', ');

/** The newest time of the vendor's library for the product that a kernel computes. */
function rivalOf(
  about: Line<'job'> | undefined,
  facts: MachineFacts,
  rivals: ReadonlyMap<string, VendorBaseline>,
): VendorBaseline | undefined {
  const product = about?.job.product;
  return product && rivals.get(textOf({ ...product, gpu: facts['gpu'], driver: facts['driver'] }));
}

function rivalsOf(lines: readonly TuningLine[]): ReadonlyMap<string, VendorBaseline> {
  const rivals = new Map<string, VendorBaseline>();
  for (const line of lines) {
    if (line.kind !== 'rival') continue;
    const { rival, name, seconds } = line.record;
    const { library, ...product } = rival;
    rivals.set(textOf(product), { library, algorithm: name, seconds: median(seconds), source: 'tuning records' });
  }
  return rivals;
}

function finalOf({ about, bucket }: JobRecords, finals: readonly Line<'final'>[]): TuningJob['final'] {
  if (about === undefined) return undefined;
  const { signature, schedule } = about.job;
  const held = finals.findLast(
    (each) =>
      each.key === signature &&
      Object.entries(bucket.extents).every(([name, value]) => each.bucket.extents[name] === value) &&
      (bucket.longest === 1 || bucket.longest === each.bucket.longest),
  );
  if (held === undefined) return undefined;
  const isDefault = (each: unknown): boolean => textOf(each) === textOf(schedule);
  const won = winnerOf<unknown>({ entries: held.final, marginSeconds: held.marginSeconds }, isDefault);
  return won && { schedule: scheduleText(won.schedule), seconds: won.seconds, isDefault: isDefault(won.schedule) };
}

function jobOf(records: JobRecords, machine: MachineRecords, rivals: ReadonlyMap<string, VendorBaseline>): TuningJob {
  const { about, bucket, key, best, standard, trials, failures } = records;
  const { kernel, count: number = 1, flops, bytes } = about?.job ?? {};
  const peaks = machine.peaks?.peaks;
  const rival = rivalOf(about, machine.facts, rivals);
  const final = finalOf(records, machine.finals);
  const isKnown = peaks !== undefined && flops !== undefined && bytes !== undefined;
  const least = isKnown ? rooflineSeconds({ flops, bytes }, ratesOf(peaks)) : undefined;
  return {
    kernel: kernel ?? `${[...records.known.values()][0]?.schedule.split(' ')[0] ?? 'kernel'} ${key}`,
    isNamed: kernel !== undefined,
    bucket: bucketText(bucket),
    size: Math.max(0, ...Object.values(bucket.extents)),
    count: number,
    ...defined({ flops, bytes, standard, best, final, rival }),
    ...(least === undefined || best === undefined ? {} : { shareOfPeak: least / best.seconds }),
    trials,
    failures,
  };
}

const MAX_REASONS = 20;

function machineOf(machine: MachineRecords, rivals: ReadonlyMap<string, VendorBaseline>): TuningMachine {
  const { facts, peaks } = machine;
  const jobs = [...machine.jobs.values()].filter(({ trials }) => trials > 0);
  const numbers = new Map(jobs.map((job, i) => [job, i]));
  const trials = machine.trials.toSorted((a, b) => Date.parse(a.trial.timestamp) - Date.parse(b.trial.timestamp));
  const begin = trials[0]!.trial.timestamp;
  const schedules = new Map<string, number>();
  const numberOf = (text: string): number => {
    const number = schedules.get(text) ?? schedules.size;
    schedules.set(text, number);
    return number;
  };
  const reasons = new Map<string, number>();
  for (const { trial } of trials)
    if (trial.failure !== undefined) reasons.set(trial.failure, (reasons.get(trial.failure) ?? 0) + 1);
  const columns = {
    job: trials.map(({ job }) => numbers.get(job)!),
    at: trials.map(({ trial }) => (Date.parse(trial.timestamp) - Date.parse(begin)) / 1000),
    seconds: trials.map(({ trial: { seconds } }) => (seconds.length === 0 ? null : median(seconds))),
    schedule: trials.map(({ trial }) => numberOf(scheduleText(trial.schedule))),
  };
  return {
    name: nameOf(facts),
    facts: Object.entries(facts).map(([name, value]) => [name, String(value)]),
    begin,
    ...defined({ peaks: peaks && peaks.peaks }),
    schedules: [...schedules.keys()],
    failures: [...reasons]
      .map(([reason, number]) => ({ reason, count: number }))
      .sort((a, b) => b.count - a.count)
      .slice(0, MAX_REASONS),
    jobs: jobs.map((job) => jobOf(job, machine, rivals)),
    trials: columns,
  };
}

export interface CollectedTuning {
  readonly document: TuningDocument;
  readonly notes: readonly string[];
}

/** Files of records and of `bench:gpu --json`, in any order. Throws UserError for one that is neither. */
export function collectTuning(paths: readonly string[]): CollectedTuning {
  const lines: TuningLine[] = [];
  const benches: Bench[] = [];
  const notes: string[] = [];
  for (const path of paths) {
    if (isBench(path)) {
      benches.push(readBench(path));
      continue;
    }
    const file = readTuningFile(path);
    for (const line of file.lines) lines.push(line);
    if (file.skipped > 0) notes.push(`${path}: ${counted(file.skipped, 'line')} left out: damaged, or no record`);
  }
  const machines = new Map<string, MachineRecords>();
  for (const line of lines) {
    if (line.kind === 'rival') continue;
    const key = textOf(line.machine);
    const machine = machines.get(key) ?? new MachineRecords(line.machine);
    machines.set(key, machine);
    machine.add(line);
  }
  const rivals = rivalsOf(lines);
  const measured = [...machines.values()].filter(({ trials }) => trials.length > 0);
  return {
    document: {
      files: shortNames(paths.map((path) => resolve(path))),
      machines: measured.map((machine) => machineOf(machine, rivals)),
      benches,
    },
    notes,
  };
}
