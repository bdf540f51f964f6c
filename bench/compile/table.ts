/** What the benchmark of planning prints. */
import type { Detail, Measured, Parts } from './measure.js';

export interface Row {
  readonly name: string;
  /** Absent where the model could not be planned. */
  readonly measured?: Measured;
  readonly problem?: string;
  readonly detail?: Detail;
}

const NAME_COLUMNS = 38;
const COLUMNS = ['plan', 'cpu', 'emit', 'check', 'launches', 'sources'] as const;
const WIDTH = 9;

export const HEADER = ''.padEnd(NAME_COLUMNS) + COLUMNS.map((name) => name.padStart(WIDTH)).join('');

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

/** The median of each figure. */
export const medianOf = (rounds: readonly Measured[]): Measured => {
  const of = (key: keyof Measured): number => median(rounds.map((round) => round[key]));
  return {
    planSeconds: of('planSeconds'),
    planCpuSeconds: of('planCpuSeconds'),
    emitSeconds: of('emitSeconds'),
    checkSeconds: of('checkSeconds'),
    launches: of('launches'),
    sources: of('sources'),
  };
};

export function rowLine({ name, measured, problem }: Row): string {
  if (measured === undefined) return `${name.padEnd(NAME_COLUMNS)} ${problem ?? ''}`;
  const { planSeconds, planCpuSeconds, emitSeconds, checkSeconds, launches, sources } = measured;
  const times = [planSeconds, planCpuSeconds, emitSeconds, checkSeconds].map((value) => value.toFixed(2));
  return name.padEnd(NAME_COLUMNS) + [...times, launches, sources].map((text) => String(text).padStart(WIDTH)).join('');
}

/** How processor time grows between two rows of one model. */
export function growthLine(first: Row, last: Row): string {
  if (first.measured === undefined || last.measured === undefined) return '  growth: unknown';
  const [launches, cpu] = (['launches', 'planCpuSeconds'] as const).map(
    (key) => last.measured![key] / first.measured![key],
  );
  return `  ${launches!.toFixed(2)} times as many launches: ${cpu!.toFixed(2)} times the processor time`;
}

const partLines = (title: string, parts: Parts): string[] => {
  const sorted = Object.entries(parts).toSorted(([, a], [, b]) => b - a);
  const total = sorted.reduce((sum, [, value]) => sum + value, 0);
  return [
    `  ${title}, ${total.toFixed(0)} ms`,
    ...sorted.map(([name, value]) => `    ${value.toFixed(1).padStart(8)}  ${name}`),
  ];
};

export const detailLines = ({ passes, signatures, schedules, emission }: Detail): string[] => [
  ...partLines('by pass', passes),
  ...partLines('signatures, by anchor', signatures),
  ...partLines('default schedules, by kind of kernel', schedules),
  ...partLines('sources, by kind of kernel', emission),
];
