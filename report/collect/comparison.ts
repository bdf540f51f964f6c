/** The section of comparisons: every run beside the first, by the tests of evaluate/compare. */
import { UserError } from '../../errors.js';
import type { LeadSpread } from '../../evaluate/compare/compareAnswers.js';
import type { MetricDifference } from '../../evaluate/compare/compareMetrics.js';
import { compareFiles, type Comparison } from '../../evaluate/compare/compareRuns.js';
import type { SampleReader } from '../../evaluate/compare/compareTask.js';
import { readSamples } from '../../evaluate/compare/readSamples.js';
import type { ComparisonDocument, MetricRow, RunComparison } from '../document/comparison.js';
import { likelihood, type Likelihood } from '../document/questions.js';
import { type LoadedRun, metricName } from './loadRuns.js';
import { shortNamer } from './shortNames.js';

const rowOf = (name: string, of: MetricDifference): MetricRow => ({
  name,
  metric: metricName(`${of.metric},${of.filter}`),
  questions: of.questions,
  first: of.a,
  other: of.b,
  difference: of.difference,
  interval: of.interval,
  test: of.test?.name ?? null,
  p: of.test?.p ?? null,
  lost: of.flips?.rightToWrong ?? null,
  gained: of.flips?.wrongToRight ?? null,
  isHigherBetter: of.isHigherBetter ?? null,
});

/** `A` and `B` of the comparison's lines are named as the page names its runs. */
function named(line: string, a: string, b: string): string {
  return line.replace(/\bA\b|\bB\b/g, (letter) => (letter === 'A' ? a : b));
}

const medianOf = (leads: LeadSpread | null): Likelihood | null =>
  leads === null ? null : likelihood(leads.median ?? Infinity);

function comparisonOf(found: Comparison, other: number, runs: readonly LoadedRun[]): RunComparison {
  const [a, b] = [runs[0]!.name, runs[other]!.name];
  const paths = [runs[0]!, runs[other]!].flatMap(({ files, tasks }) => [
    files.path,
    ...[...tasks.values()].map(({ set }) => set.path),
  ]);
  const groups = found.groups.flatMap(({ group, metrics }) => metrics.map((metric) => rowOf(group, metric)));
  const tasks = found.tasks.flatMap(({ task, metrics }) => metrics.map((metric) => rowOf(task, metric)));
  return {
    first: 0,
    other,
    onlyFirst: found.onlyA,
    onlyOther: found.onlyB,
    summary: named(found.summary, a, b),
    verdicts: found.verdicts.map(({ line }) => named(line, a, b)),
    unlike: found.unlike.map((each) => ({ what: each.what, first: each.a, other: each.b })),
    metrics: [...groups, ...tasks],
    questions: found.tasks.map(({ task, questions: of }) => ({
      task,
      common: of.common,
      onlyFirst: of.onlyA,
      onlyOther: of.onlyB,
      renumbered: of.renumbered,
      otherContent: of.otherContent,
      otherPrompt: of.otherPrompt,
    })),
    likelihoods: found.tasks.flatMap(({ task, likelihoods: of }) => (of === null ? [] : [{ task, ...of }])),
    choices: found.tasks.flatMap(({ task, choices: of }) =>
      of === null
        ? []
        : [
            {
              task,
              questions: of.questions,
              changed: of.changed.length,
              leadOfChanged: medianOf(of.marginsOfChanged),
              lead: medianOf(of.margins),
            },
          ],
    ),
    texts: found.tasks.flatMap(({ task, texts: of }) =>
      of === null ? [] : [{ task, questions: of.questions, equal: of.equal }],
    ),
    notes: [
      ...found.notes,
      ...found.tasks.flatMap(({ task, notes }) => notes.map((note) => `${task}: ${named(note, a, b)}`)),
    ].map(shortNamer(paths)),
  };
}

/** Undefined for a single run. Runs that have nothing in common with the first are named with the reason. */
export function collectComparison(runs: readonly LoadedRun[]): ComparisonDocument | undefined {
  if (runs.length < 2) return undefined;
  const sets = new Map(runs.flatMap(({ tasks }) => [...tasks.values()].map(({ set }) => [set.path, set] as const)));
  const read: SampleReader = (task, path) => sets.get(path) ?? readSamples(task, path);
  const paths = runs.map(({ files }) => files.path);
  const comparisons: RunComparison[] = [];
  const apart: { run: number; why: string }[] = [];
  runs.slice(1).forEach(({ files }, i) => {
    try {
      comparisons.push(comparisonOf(compareFiles(runs[0]!.files, files, read), i + 1, runs));
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      apart.push({ run: i + 1, why: shortNamer(paths)(error.message) });
    }
  });
  return { runs: runs.map(({ name }) => name), comparisons, apart };
}
