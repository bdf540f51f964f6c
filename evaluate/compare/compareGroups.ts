/** Groups of two runs: their tasks pooled as the harness pools them, on the questions that both answered. */
import { type Figure, figuresOfGroup, type TaskFigures } from '../../tasks/scores/groups.js';
import { type MetricDifference, testOfMeans } from './compareMetrics.js';
import type { ComparedTask } from './compareTask.js';
import type { Block, GroupFiles, RunFiles } from './findRuns.js';

export interface GroupDifference {
  readonly group: string;
  /** Tasks below it that were compared, and how many it has. */
  readonly tasks: readonly string[];
  readonly of: number;
  readonly metrics: readonly MetricDifference[];
}

/** Tasks below a group, each once. Each group is looked into once: hostile ones are in circles. */
function leavesOf({ groups }: RunFiles, name: string): Set<string> {
  const found = new Set<string>();
  const seen = new Set([name]);
  for (const group of seen)
    for (const member of groups.get(group)?.members ?? [])
      if (groups.has(member)) seen.add(member);
      else found.add(member);
  return found;
}

const figureIn = (block: Block, key: string): number | undefined => {
  const value = block[key];
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
};

/** Whether the group's own figure weighs its tasks by their questions: found out from the figures of the file. */
function weighsBySize({ tasks }: RunFiles, group: GroupFiles, leaves: readonly string[], key: string): boolean {
  const stated = figureIn(group.figures, key);
  const all: TaskFigures[] = leaves.flatMap((name) => {
    const { figures = {} } = tasks.get(name) ?? {};
    const [value, documents] = [figureIn(figures, key), figureIn(figures, 'sample_len')];
    if (value === undefined || documents === undefined) return [];
    return [{ documents, figures: new Map<string, Figure>([[key, { value, error: null }]]) }];
  });
  const [metric = '', filter = ''] = key.split(/,(.*)/s);
  const pooled = (weightBySize: boolean): number =>
    figuresOfGroup(all, [{ metric, filters: [filter], weightBySize }]).get(key)?.value ?? NaN;
  if (stated === undefined || all.length === 0) return true;
  return !(Math.abs(pooled(false) - stated) < Math.abs(pooled(true) - stated));
}

function compareMetric(
  run: RunFiles,
  group: GroupFiles,
  leaves: readonly string[],
  compared: readonly ComparedTask[],
  key: string,
): MetricDifference | undefined {
  const having = compared.flatMap(({ metrics }) => metrics.filter((each) => `${each.metric},${each.filter}` === key));
  const [first] = having;
  if (first === undefined) return undefined;
  const weightBySize = weighsBySize(run, group, leaves, key);
  const { metric, filter, isHigherBetter } = first;
  const pooled = (side: 'a' | 'b'): number => {
    const all = having.map((each) => ({
      documents: each.questions,
      figures: new Map<string, Figure>([[key, { value: each[side], error: null }]]),
    }));
    return figuresOfGroup(all, [{ metric, filters: [filter], weightBySize }]).get(key)!.value;
  };
  const strata = having.flatMap(({ differences, questions }) =>
    differences === undefined ? [] : [{ differences, weight: weightBySize ? questions : 1 }],
  );
  const [a, b] = [pooled('a'), pooled('b')];
  const tested =
    strata.length === having.length
      ? testOfMeans(
          strata,
          having.every(({ isBinary }) => isBinary),
        )
      : { interval: null, test: null, flips: null };
  return {
    metric,
    filter,
    isHigherBetter,
    a,
    b,
    questions: having.reduce((sum, each) => sum + each.questions, 0),
    ...tested,
    difference: b - a,
  };
}

/** Groups that both runs have, the innermost first as their files list them. */
export function compareGroups(a: RunFiles, b: RunFiles, tasks: readonly ComparedTask[]): readonly GroupDifference[] {
  const byName = new Map(tasks.map((each) => [each.task, each]));
  return [...a.groups.values()].flatMap((group): readonly GroupDifference[] => {
    if (!b.groups.has(group.group)) return [];
    const leaves = [...leavesOf(a, group.group)];
    const compared = leaves.flatMap((name) => byName.get(name) ?? []);
    const keys = Object.keys(group.figures).filter((key) => key.includes(',') && !key.includes('_stderr,'));
    const metrics = keys.flatMap((key) => compareMetric(a, group, leaves, compared, key) ?? []);
    return metrics.length === 0
      ? []
      : [{ group: group.group, tasks: compared.map(({ task }) => task), of: leaves.length, metrics }];
  });
}
