/** The section of results: what runs came to, and what they took. */
import * as Plot from '@observablehq/plot';
import { useState } from 'preact/hooks';
import { namedRows } from '../../document/namedRows.js';
import type { Figure, ResultsDocument, RunResult, TaskResult } from '../../document/results.js';
import { Chart } from '../parts/Chart.js';
import { Choose, Name, Shown, Table } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { count, fixed, percent, percents } from '../parts/numbers.js';
import { type Route, setState } from '../parts/route.js';
import { Breakdowns, MarginHistogram, Reliability } from './Breakdowns.js';
import { Cost } from './Cost.js';

/** What is shown of one task at a time. */
function Task({ run }: { readonly run: RunResult }) {
  const { breakdowns, calibrations, margins } = run;
  const tasks = [...new Set([...calibrations, ...margins, ...breakdowns].map(({ task }) => task))];
  const [chosen, setChosen] = useState(tasks[0] ?? '');
  const task = tasks.includes(chosen) ? chosen : tasks[0];
  if (task === undefined) return null;
  const calibration = calibrations.find((each) => each.task === task);
  const margin = margins.find((each) => each.task === task);
  const options = tasks.map((each) => ({ value: each, title: each }));
  return (
    <>
      {tasks.length > 1 && (
        <div class="controls top">
          <Choose label="Task" value={task} options={options} onChange={setChosen} />
        </div>
      )}
      {(calibration !== undefined || margin !== undefined) && (
        <section>
          <h3>How sure, and how right</h3>
          <div class="pair">
            {calibration !== undefined && <Reliability of={calibration} />}
            {margin !== undefined && <MarginHistogram of={margin} />}
          </div>
        </section>
      )}
      <Breakdowns all={breakdowns.filter((each) => each.task === task)} />
    </>
  );
}

function Run({ run, isOnly }: { readonly run: RunResult; readonly isOnly: boolean }) {
  return (
    <section class="run">
      <h2 class={isOnly ? 'hidden' : ''}>
        <Shown text={run.name} />
      </h2>
      <Accuracies run={run} />
      <Task run={run} />
      <Cost run={run} />
    </section>
  );
}

/** Several runs side by side, and one of them at length. */
function Results({ runs, route }: ResultsDocument & { readonly route: Route }) {
  const chosen = runs[Number(route.state['run'] ?? 0)] ?? runs[0];
  if (chosen === undefined) return <p>There are no results.</p>;
  const options = runs.map(({ name }, run) => ({ value: String(run), title: name }));
  return (
    <>
      {runs.length > 1 && (
        <>
          <Overview runs={runs} />
          <div class="controls top">
            <Choose
              label="Run"
              value={String(runs.indexOf(chosen))}
              options={options}
              onChange={(run) => setState({ run })}
            />
          </div>
        </>
      )}
      <Run key={chosen.name} run={chosen} isOnly={runs.length === 1} />
    </>
  );
}

export const ResultsView = ({ route }: { readonly route: Route }) => (
  <Section name="results">{(content) => <Results {...content} route={route} />}</Section>
);

/** Figures of tasks and groups: a chart of shares with their intervals, and a table of everything. */

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

/** Several runs side by side: a row for each task and metric, a column for each run. */

interface Row {
  readonly task: TaskResult;
  readonly figures: (Figure | undefined)[];
  readonly metric: string;
}

/** Tasks and metrics of any run, in the order in which they come. */
function rowsOf(runs: readonly RunResult[]): Row[] {
  const rows = new Map<string, Row>();
  runs.forEach(({ tasks }, run) => {
    for (const task of tasks)
      for (const figure of task.figures) {
        const metric = nameOf(figure);
        const key = JSON.stringify([task.task, metric]);
        const row = rows.get(key) ?? { task, metric, figures: runs.map(() => undefined) };
        row.figures[run] = figure;
        rows.set(key, row);
      }
  });
  return [...rows.values()];
}

export function Overview({ runs }: { readonly runs: readonly RunResult[] }) {
  return (
    <section>
      <h2>All runs</h2>
      <Table
        caption="Figures of all runs, with 95 % intervals"
        columns={[{ title: 'Task' }, { title: 'Metric' }, ...runs.map(({ name }) => ({ title: name, isRight: true }))]}
        rows={rowsOf(runs).map(({ task, metric, figures }) => [
          <span class="indented" style={{ paddingInlineStart: `${task.depth}rem` }}>
            <Name text={task.task} />
          </span>,
          <Name text={metric} />,
          ...figures.map((figure) =>
            figure === undefined ? (
              '–'
            ) : (
              <>
                <strong>{valueOf(figure)}</strong> <span class="soft">{intervalOf(figure)}</span>
              </>
            ),
          ),
        ])}
      />
    </section>
  );
}

/** How figures of tasks are written. */

export const nameOf = ({ metric, filter }: Figure): string => (filter === 'none' ? metric : `${metric} (${filter})`);

export const valueOf = ({ value, isShare }: Figure): string => (isShare ? percent(value) : fixed(value, 4));

export const intervalOf = ({ interval, isShare }: Figure): string =>
  interval === null ? '–' : isShare ? percents(interval) : `${fixed(interval[0], 4)} to ${fixed(interval[1], 4)}`;

export const errorOf = ({ error, isShare }: Figure): string =>
  error === null ? '–' : isShare ? percent(error) : fixed(error, 4);
