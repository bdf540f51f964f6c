/** How the command and its devices started. */
import * as Plot from '@observablehq/plot';
import type { Phase, TraceView } from '../../document/machine.js';
import { Chart } from '../parts/Chart.js';
import { namedRows } from '../../document/namedRows.js';
import { count, duration, fixed, si } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Shown, visible } from '../parts/Text.js';

const isCommand = ({ process }: Phase): boolean => process === 'command';
/** Devices share the rows of their phases. */
const rowOf = (phase: Phase): string => (isCommand(phase) ? visible(phase.name) : `devices: ${visible(phase.name)}`);

export function Startup({ trace: { phases, loads } }: { readonly trace: TraceView }) {
  if (phases.length === 0) return null;
  const sorted = phases.toSorted((a, b) => Number(isCommand(b)) - Number(isCommand(a)) || a.begin - b.begin);
  const rows = [...new Set(sorted.map(rowOf))];
  const end = phases.reduce((most, phase) => Math.max(most, phase.end), 0);
  const longest = phases.reduce((top, phase) => (phase.end - phase.begin > top.end - top.begin ? phase : top));
  const summary =
    `${phases.length} phases in ${duration(end)}; the longest, ${visible(longest.name)}, took ` +
    duration(longest.end - longest.begin);
  return (
    <section aria-labelledby="startup">
      <h3 id="startup">Start-up</h3>
      <Chart
        title="Phases until the first answer"
        summary={summary}
        inputs={[phases]}
        options={(width) => ({
          height: rows.length * 24 + 64,
          marginBottom: 44,
          ...namedRows(rows, width, 150),
          marginRight: 56,
          x: { label: 'seconds since the command', labelOffset: 38, grid: true, domain: [0, end] },
          marks: [
            Plot.barX(sorted, {
              ...{ x1: 'begin', x2: 'end', y: rowOf, insetTop: 3, insetBottom: 3 },
              fill: 'var(--four)',
              fillOpacity: (phase: Phase) => (isCommand(phase) ? 0.9 : 0.45),
            }),
            Plot.text(
              rows.map((row) =>
                sorted
                  .filter((phase) => rowOf(phase) === row)
                  .reduce((top, phase) => (phase.end > top.end ? phase : top)),
              ),
              {
                ...{ x: 'end', y: rowOf, textAnchor: 'start', dx: 5, fill: 'var(--soft)' },
                text: (phase: Phase) => duration(phase.end - phase.begin),
              },
            ),
          ],
        })}
      >
        <Table
          caption="Phases of starting up"
          columns={[
            { title: 'Phase' },
            { title: 'Of' },
            { title: 'Begin, s', isRight: true },
            { title: 'End, s', isRight: true },
            { title: 'Took, s', isRight: true },
          ]}
          rows={sorted.map((phase) => [
            <Shown key="name" text={phase.name} />,
            <Shown key="of" text={phase.process} />,
            fixed(phase.begin, 3),
            fixed(phase.end, 3),
            fixed(phase.end - phase.begin, 3),
          ])}
        />
      </Chart>
      {loads !== undefined && (
        <details>
          <summary>
            {count(loads.count)} weights, {si(loads.bytes, 'B')} packed in {duration(loads.seconds)}
          </summary>
          <Table
            caption={`The ${loads.longest.length} that took longest`}
            columns={[
              { title: 'Weight' },
              { title: 'Took, ms', isRight: true },
              { title: 'Bytes', isRight: true },
              { title: 'Rate', isRight: true },
            ]}
            rows={loads.longest.map(({ name, seconds, bytes }) => [
              <Shown key="name" text={name} />,
              fixed(1000 * seconds, 2),
              count(bytes),
              seconds > 0 ? si(bytes / seconds, 'B/s') : '–',
            ])}
          />
        </details>
      )}
    </section>
  );
}
