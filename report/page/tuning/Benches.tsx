/** Kernels beside the vendor's library, as `bench:gpu` measured them in turns. */
import * as Plot from '@observablehq/plot';
import type { Bench, BenchRow } from '../../document/tuning.js';
import { Chart } from '../parts/Chart.js';
import { namedRows } from '../../document/namedRows.js';
import { count, fixed } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Shown, visible } from '../parts/Text.js';
import { timeText } from './times.js';

const nameOf = ({ kernel, tokens }: BenchRow): string => `${visible(kernel)}  ${count(tokens)}`;
const ratioOf = ({ rival, seconds }: BenchRow): number => rival!.seconds / seconds;

export function Benches({ benches }: { readonly benches: readonly Bench[] }) {
  return (
    <>
      {benches.map((bench, i) => {
        const compared = bench.rows.filter(({ rival }) => rival !== undefined);
        const ahead = compared.filter((row) => ratioOf(row) >= 1).length;
        const summary =
          `${visible(bench.device)}, ${visible(bench.library)}: ` +
          `ours is at least as fast for ${count(ahead)} of ${count(compared.length)} kernels`;
        return (
          <Chart
            key={i}
            title={`${visible(bench.model)} beside the vendor’s library`}
            summary={summary}
            inputs={[bench]}
            options={(width) => ({
              height: compared.length * 20 + 48,
              ...namedRows(compared.map(nameOf), width, 220),
              marginRight: 52,
              x: { label: 'times as fast as the vendor', grid: true, axis: 'top' },
              marks: [
                Plot.ruleX([1], { stroke: 'var(--soft)' }),
                Plot.dot(compared, { x: ratioOf, y: nameOf, r: 5, fill: 'var(--two)', stroke: 'var(--card)' }),
                Plot.text(compared, {
                  x: ratioOf,
                  y: nameOf,
                  textAnchor: 'start',
                  dx: 9,
                  fill: 'var(--soft)',
                  text: (row: BenchRow) => fixed(ratioOf(row), 3),
                }),
              ],
            })}
          >
            <Table
              caption="Kernels with their epilogues, and the vendor's bare products"
              columns={[
                { title: 'Kernel' },
                { title: 'Tokens', isRight: true },
                { title: 'Ours', isRight: true },
                { title: 'Vendor', isRight: true },
                { title: 'Vendor ÷ ours', isRight: true },
                { title: 'Schedule' },
              ]}
              rows={bench.rows.map((row) => [
                <Shown key="kernel" text={row.kernel} />,
                count(row.tokens),
                timeText(row.seconds),
                row.rival === undefined ? '–' : timeText(row.rival.seconds),
                row.rival === undefined ? '–' : fixed(ratioOf(row), 3),
                <Shown key="schedule" text={row.schedule} />,
              ])}
            />
          </Chart>
        );
      })}
    </>
  );
}
