/** Several runs side by side: a row for each task and metric, a column for each run. */
import type { Figure, RunResult, TaskResult } from '../../document/results.js';
import { Table } from '../parts/Table.js';
import { Name } from '../parts/Text.js';
import { intervalOf, nameOf, valueOf } from './figureTexts.js';

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
