/** Figures of tasks and groups: a chart of shares with their intervals, and a table of everything. */
import * as Plot from '@observablehq/plot';
import type { RunResult, TaskResult } from '../../document/results.js';
import { Chart } from '../parts/Chart.js';
import { namedRows } from '../../document/namedRows.js';
import { count, percent, percents } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Name } from '../parts/Text.js';
import { errorOf, intervalOf, nameOf, valueOf } from './figureTexts.js';

function Numbers({ tasks }: { readonly tasks: readonly TaskResult[] }) {
  const rows = tasks.flatMap(({ task, depth, questions, shots, figures }) =>
    figures.map((figure, i) => [
      <span class="indented" style={{ paddingInlineStart: `${depth}rem` }}>
        {i === 0 ? <Name text={task} /> : <span class="hidden">{task}</span>}
      </span>,
      <Name text={nameOf(figure)} />,
      <strong>{valueOf(figure)}</strong>,
      intervalOf(figure),
      errorOf(figure),
      i > 0 || questions === null ? '' : count(questions),
      i > 0 || shots === null ? '' : String(shots),
    ]),
  );
  const columns = [
    { title: 'Task' },
    { title: 'Metric' },
    { title: 'Value', isRight: true },
    { title: '95 % interval', isRight: true },
    { title: 'Standard error', isRight: true },
    { title: 'Questions', isRight: true },
    { title: 'Shots', isRight: true },
  ];
  return <Table caption="All figures" columns={columns} rows={rows} />;
}

interface Bar {
  readonly task: string;
  readonly metric: string;
  readonly value: number;
  readonly from: number;
  readonly to: number;
}

/** The metric that most tasks have, and of these the first. */
function shownMetric(tasks: readonly TaskResult[]): string | undefined {
  const counts = new Map<string, number>();
  for (const { figures } of tasks)
    for (const figure of figures) if (figure.isShare) counts.set(nameOf(figure), (counts.get(nameOf(figure)) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a)[0]?.[0];
}

const ROW = 26;

export function Accuracies({ run }: { readonly run: RunResult }) {
  const { tasks } = run;
  const isSingle = tasks.length === 1;
  const metric = shownMetric(tasks);
  const bars: Bar[] = tasks.flatMap(({ task, depth, figures }) =>
    figures
      .filter((figure) => figure.isShare && (isSingle || nameOf(figure) === metric))
      .map((figure) => ({
        task: `${'\u00a0'.repeat(3 * depth)}${isSingle ? nameOf(figure) : task}`,
        metric: nameOf(figure),
        value: figure.value,
        from: figure.interval?.[0] ?? figure.value,
        to: figure.interval?.[1] ?? figure.value,
      })),
  );
  const shown = bars.map(({ task, value, from, to }) => `${task.trim()} ${percent(value)} (${percents([from, to])})`);
  const [first] = tasks;
  return (
    <section>
      <h3>Accuracy</h3>
      {isSingle && first !== undefined && (
        <div class="big">
          {first.figures.slice(0, 4).map((figure) => (
            <div key={nameOf(figure)}>
              <span>{nameOf(figure)}</span>
              <strong>{valueOf(figure)}</strong>
              <span>95 %: {intervalOf(figure)}</span>
            </div>
          ))}
        </div>
      )}
      {bars.length > 0 && !isSingle && (
        <Chart
          title={`${metric!} by task, with 95 % intervals`}
          summary={
            shown.length > 12
              ? `${count(shown.length)} of ${count(tasks.length)} tasks and groups; the table has their figures.`
              : shown.join('; ')
          }
          inputs={[run]}
          options={(width) => ({
            height: 50 + ROW * bars.length,
            marginBottom: 30,
            marginRight: 50,
            x: { label: null, percent: true, grid: true, nice: true },
            ...namedRows(
              bars.map(({ task }) => task),
              width,
              240,
            ),
            marks: [
              Plot.link(bars, { y: 'task', x1: 'from', x2: 'to', stroke: 'var(--accent)', strokeWidth: 2 }),
              Plot.dot(bars, { y: 'task', x: 'value', fill: 'var(--accent)', r: 4 }),
              Plot.text(bars, {
                y: 'task',
                x: 'to',
                text: ({ value }: Bar) => (100 * value).toFixed(1),
                textAnchor: 'start',
                dx: 8,
                fill: 'currentColor',
              }),
            ],
          })}
        />
      )}
      <Numbers tasks={tasks} />
    </section>
  );
}
