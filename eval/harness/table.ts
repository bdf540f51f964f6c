/** The figures of tasks and groups for people: Markdown, in the public harness's columns. */
import { printRows } from '../table.js';
import type { GroupAnswers, TaskAnswers } from './answers.js';
import { versionOf } from './config.js';
import type { Figure } from '../../tasks/scores/groups.js';

const decimal = (value: number | null): string => value?.toFixed(4) ?? 'N/A';

interface Lines {
  readonly name: string;
  readonly version: string;
  readonly shots: string;
  readonly figures: ReadonlyMap<string, Figure>;
  readonly isBetterHigh: (metric: string) => boolean | undefined;
}

function rowsOf({ name, version, shots, figures, isBetterHigh }: Lines): string[][] {
  return [...figures].map(([key, { value, error }], i) => {
    const [metric = '', filter = ''] = key.split(',');
    const isHigh = isBetterHigh(metric);
    const arrow = isHigh === undefined ? '' : isHigh ? '↑' : '↓';
    return [
      i === 0 ? name : '',
      i === 0 ? version : '',
      filter,
      shots,
      metric,
      arrow,
      decimal(value),
      '±',
      decimal(error),
    ];
  });
}

/** Versions are shown with their fraction. */
const shown = (version: number | string): string =>
  typeof version === 'number' && Number.isInteger(version) ? version.toFixed(1) : String(version);

/** Tasks first, then groups from the outermost. */
export function formatTasks(tasks: readonly TaskAnswers[], groups: readonly GroupAnswers[]): string {
  const better = new Map(
    tasks.flatMap(({ task }) => task.scores.metrics.map(({ name, isHigherBetter }) => [name, isHigherBetter] as const)),
  );
  const isBetterHigh = (metric: string): boolean | undefined => better.get(metric);
  const rows = tasks.flatMap(({ task, figures }) =>
    rowsOf({
      name: task.name,
      version: shown(versionOf(task)),
      shots: String(task.shots),
      figures,
      isBetterHigh,
    }),
  );
  const ofGroups = [...groups].reverse().flatMap(({ group, figures, depth }) =>
    rowsOf({
      name: `${' '.repeat(depth)}${depth > 0 ? '- ' : ''}${group.alias ?? group.name}`,
      version: '',
      shots: '',
      figures,
      isBetterHigh,
    }),
  );
  return [printRows('Tasks', rows), ...(ofGroups.length === 0 ? [] : [printRows('Groups', ofGroups)])].join('\n\n');
}
