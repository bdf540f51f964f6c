/** What studies of searches show on a page: plots, and a sentence with the figures that matter. */
import type { LinePlot, PlotSection } from './linePlot.js';
import {
  type ChangedPicks,
  COLUMNS,
  type ModelMoment,
  type NamedRun,
  problemsAnHour,
  type Role,
  ROLES,
  rowOf,
} from './searchFigures.js';

/** Points of a line over time: more than a plot has pixels say nothing. */
const MAX_POINTS = 400;

const tableOf = (runs: readonly NamedRun[], depth: number): readonly (readonly string[])[] => [
  COLUMNS,
  ...runs.map(({ name, figures }) => rowOf(name, figures, depth)),
];

function overTime(
  { figures: { moments } }: NamedRun,
  title: string,
  y: string,
  lines: readonly { readonly name: string; readonly of: (moment: Readonly<Record<Role, ModelMoment>>) => number }[],
): LinePlot {
  const every = Math.max(1, Math.ceil(moments.length / MAX_POINTS));
  const shown = moments.filter((_, i) => i % every === 0);
  return {
    ...{ title, x: 'seconds', y, hasDots: false },
    lines: lines.map(({ name, of }) => ({
      name,
      points: shown.map((moment) => [moment.seconds, of(moment)] as const),
    })),
  };
}

/** Pages of both models over time, and the sequences in steps. */
const timelines = (run: NamedRun): readonly LinePlot[] => [
  overTime(
    run,
    'Pages of each model',
    'pages',
    ROLES.flatMap((role) => [
      { name: `${role}: with memory`, of: (moment) => moment[role].pages },
      { name: `${role}: held`, of: (moment) => moment[role].held },
    ]),
  ),
  overTime(
    run,
    'Sequences of each model',
    'sequences',
    ROLES.flatMap((role) => [
      { name: `${role}: in steps`, of: (moment) => moment[role].running },
      { name: `${role}: waiting`, of: (moment) => moment[role].waiting },
    ]),
  ),
];

export function wholeSection(run: NamedRun, depth: number): PlotSection {
  const { figures } = run;
  const { verifier, verifierNeeded, seconds, tokens } = figures;
  return {
    title: 'All problems',
    about:
      `${problemsAnHour(figures, depth).toFixed(0)} problems/h, ${(tokens / seconds).toFixed(0)} tokens/s of the ` +
      `generator and ${(verifier.computedTokens / seconds).toFixed(0)} of the verifier, which computed ` +
      `${(verifier.computedTokens / Math.max(1, verifierNeeded)).toFixed(3)} tokens for each that it had to.`,
    plots: timelines(run),
    table: tableOf([run], depth),
  };
}

const rates = (runs: readonly NamedRun[], depth: number): readonly (readonly [number, number])[] =>
  runs
    .filter(({ at }) => Number.isFinite(at))
    .map(({ at, figures }) => [at, problemsAnHour(figures, depth)] as const)
    .sort(([a], [b]) => a - b);

export function splitsSection(runs: readonly NamedRun[], depth: number): PlotSection {
  const fixed = rates(runs, depth);
  const moving = runs.filter(({ at }) => Number.isNaN(at));
  const own = Math.max(0, ...moving.map(({ figures }) => problemsAnHour(figures, depth)));
  const [share, best] = fixed.reduce((top, each) => (each[1] > top[1] ? each : top), [NaN, 0] as const);
  const [first] = moving;
  return {
    title: 'Memory split',
    about:
      `Memory that moves by itself: ${own.toFixed(0)} problems/h. The best of ${fixed.length} fixed splits gives the ` +
      `generator ${share}: ${best.toFixed(0)}, so that moving memory has ${((100 * own) / best).toFixed(1)} % of it.`,
    plots: [
      {
        title: 'Throughput by memory split',
        x: "the generator's share of the memory for keys and values",
        y: 'problems/h',
        lines: [
          { name: 'fixed split', points: fixed },
          { name: 'moves by itself', points: [[0, own]], isLevel: true },
        ],
      },
      {
        title: 'What was computed again',
        x: "the generator's share of the memory for keys and values",
        y: 'verifier: tokens computed ÷ needed',
        lines: [
          {
            name: 'fixed split',
            points: runs
              .filter(({ at }) => Number.isFinite(at))
              .map(({ at, figures }) => [at, figures.verifier.computedTokens / figures.verifierNeeded] as const)
              .sort(([a], [b]) => a - b),
          },
        ],
      },
      ...(first === undefined ? [] : timelines(first)),
    ],
    table: tableOf(runs, depth),
  };
}

function sizesSection(
  runs: readonly NamedRun[],
  depth: number,
  { title, x, of }: { readonly title: string; readonly x: string; readonly of: string },
): PlotSection {
  const points = rates(runs, depth);
  const [at, best] = points.reduce((top, each) => (each[1] > top[1] ? each : top), [NaN, 0] as const);
  const tokensOf = (role: Role): readonly (readonly [number, number])[] =>
    runs
      .map(({ at: place, figures }) => [place, figures[role].computedTokens / figures.seconds] as const)
      .sort(([a], [b]) => a - b);
  return {
    title,
    about: `The most, ${best.toFixed(0)} problems/h, come of ${at} ${of}.`,
    plots: [
      { title, x, y: 'problems/h', isLogarithmic: true, lines: [{ name: 'problems/h', points }] },
      {
        title: 'Tokens a second',
        ...{ x, y: 'tokens/s', isLogarithmic: true },
        lines: ROLES.map((role) => ({ name: role, points: tokensOf(role) })),
      },
    ],
    table: tableOf(runs, depth),
  };
}

export const problemsSection = (runs: readonly NamedRun[], depth: number): PlotSection =>
  sizesSection(runs, depth, {
    title: 'Throughput by number of sequences',
    x: 'sequences: paths of all problems at once',
    of: 'sequences',
  });

export const callsSection = (runs: readonly NamedRun[], depth: number): PlotSection =>
  sizesSection(runs, depth, {
    title: 'Throughput by tokens a call',
    x: 'most tokens of a call',
    of: 'tokens a call',
  });

export function fp8Section(
  runs: readonly NamedRun[],
  { problems, picks, iterations, equalIterations, meanDistance, mostDistance }: ChangedPicks,
  depth: number,
  kind: string,
): PlotSection {
  return {
    title: `Verifier in ${kind}`,
    about:
      `Of ${problems} problems ${picks} have another pick; ${equalIterations} of ${iterations} iterations come ` +
      `before the first other choice. Scores of equal steps are ${meanDistance.toExponential(1)} apart on average, ` +
      `${mostDistance.toExponential(1)} at most.`,
    plots: [],
    table: tableOf(runs, depth),
  };
}
