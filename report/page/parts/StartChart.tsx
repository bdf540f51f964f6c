/** How a command and its devices started: phases as bars, and what the first answer waited for marked among them. */
import * as Plot from '@observablehq/plot';
import type { StartPhase, StartStep, StartUp } from '../../../evaluate/startUp.js';
import { namedRows } from '../../document/namedRows.js';
import { Chart } from './Chart.js';
import { Shown, Table, visible } from './Elements.js';
import { counted, duration, fixed, percent, si } from './numbers.js';

const COMMAND = 'command';
const UNKNOWN = 'not accounted';
/** Charts narrower than this leave what had time to spare to the table. */
const NARROW = 520;
/** Shorter times to spare are not worth a word. */
const MIN_SECONDS = 0.005;

/** Devices share the rows of their phases. */
const rowOf = ({ process, phase }: Pick<StartStep, 'process' | 'phase'>): string => {
  if (phase === null) return UNKNOWN;
  return process === COMMAND || process === null ? visible(phase) : `devices: ${visible(phase)}`;
};

const tookOf = ({ begin, end }: StartPhase): number => end - begin;

function summaryOf(phases: readonly StartPhase[], path: readonly StartStep[], end: number): string {
  const all = counted(phases.length, 'phase');
  if (path.length === 0) {
    const longest = phases.reduce((top, phase) => (tookOf(phase) > tookOf(top) ? phase : top));
    return `${all} in ${duration(end)}; the longest, ${visible(longest.phase)}, took ${duration(tookOf(longest))}`;
  }
  const seconds = new Map<string, number>();
  for (const step of path) seconds.set(rowOf(step), (seconds.get(rowOf(step)) ?? 0) + step.seconds);
  const total = [...seconds.values()].reduce((sum, each) => sum + each, 0);
  const unknown = seconds.get(UNKNOWN) ?? 0;
  seconds.delete(UNKNOWN);
  const longest = [...seconds]
    .sort(([, a], [, b]) => b - a)
    .slice(0, 3)
    .map(([row, took]) => `${row} ${duration(took)}`);
  return (
    `${all} in ${duration(total)} until the first answer, which waited longest for ${longest.join(', ')}` +
    (unknown < MIN_SECONDS ? '' : `; ${duration(unknown)} not accounted`)
  );
}

/** Beside a bar: how long it is, and how much longer it could have been. */
function besideBar(phase: StartPhase, width: number): string {
  const { spareSeconds: spare = 0 } = phase;
  const took = duration(tookOf(phase));
  return spare < MIN_SECONDS || width < NARROW ? took : `${took}, ${duration(spare)} to spare`;
}

/** `criticalPath` is empty where it is not known. */
export function StartChart({ phases, criticalPath: path }: Omit<StartUp, 'seconds'>) {
  if (phases.length === 0) return null;
  const hasPath = path.length > 0;
  const isCommand = ({ process }: StartPhase): boolean => process === COMMAND;
  // The path leads downwards where rows follow one another in time.
  const order = (phase: StartPhase): number => (hasPath || isCommand(phase) ? 0 : 1);
  const sorted = phases.toSorted((a, b) => order(a) - order(b) || a.begin - b.begin);
  const rows = [...new Set([...sorted, ...path].map(rowOf))];
  const ended = path.reduce((last, { begin, seconds }) => Math.max(last, begin + seconds), 0);
  const end = phases.reduce((last, phase) => Math.max(last, phase.end), ended);
  const lasts = rows.flatMap((row) => {
    const own = sorted.filter((phase) => rowOf(phase) === row);
    return own.length === 0 ? [] : [own.reduce((top, phase) => (phase.end > top.end ? phase : top))];
  });
  const known = path.filter(({ phase }) => phase !== null);
  const handovers = known.slice(1).map((to, i) => ({ at: to.begin, from: rowOf(known[i]!), to: rowOf(to) }));
  return (
    <>
      {hasPath && (
        <ul class="colours" aria-hidden="true">
          <li>
            <i style={{ background: 'var(--accent)' }} />
            what the first answer waited for
          </li>
          <li>
            <i style={{ background: 'var(--four)', opacity: 0.45 }} />
            beside it
          </li>
        </ul>
      )}
      <Chart
        title="Phases until the first answer"
        summary={summaryOf(phases, path, end)}
        inputs={[phases, path]}
        options={(width) => ({
          height: rows.length * 24 + 64,
          marginBottom: 44,
          ...namedRows(rows, width, 170),
          marginRight: hasPath && width >= NARROW ? 150 : 56,
          x: { label: 'seconds since the command', labelOffset: 38, grid: true, domain: [0, end] },
          marks: [
            Plot.barX(sorted, {
              x1: 'begin',
              x2: 'end',
              y: rowOf,
              insetTop: 3,
              insetBottom: 3,
              fill: 'var(--four)',
              fillOpacity: hasPath ? 0.4 : (phase: StartPhase) => (isCommand(phase) ? 0.9 : 0.45),
            }),
            Plot.barX(path, {
              x1: 'begin',
              x2: ({ begin, seconds }: StartStep) => begin + seconds,
              y: rowOf,
              insetTop: 3,
              insetBottom: 3,
              fill: ({ phase }: StartStep) => (phase === null ? 'var(--soft)' : 'var(--accent)'),
            }),
            Plot.link(handovers, {
              x1: 'at',
              x2: 'at',
              y1: 'from',
              y2: 'to',
              stroke: 'var(--accent)',
              strokeWidth: 1.5,
            }),
            Plot.text(lasts, {
              x: 'end',
              y: rowOf,
              textAnchor: 'start',
              dx: 5,
              fill: 'var(--soft)',
              text: (phase: StartPhase) => besideBar(phase, width),
            }),
          ],
        })}
      >
        {hasPath && (
          <Table
            caption="What the first answer waited for"
            columns={[
              { title: 'Phase' },
              { title: 'Of' },
              { title: 'From, s', isRight: true },
              { title: 'Waited, s', isRight: true },
              { title: 'Of all', isRight: true },
            ]}
            rows={path.map(({ process, phase, begin, seconds }) => [
              <Shown key="name" text={phase ?? UNKNOWN} />,
              <Shown key="of" text={process ?? '–'} />,
              fixed(begin, 3),
              fixed(seconds, 3),
              ended > 0 ? percent(seconds / ended, 1) : '–',
            ])}
          />
        )}
        <Table
          caption="Phases of starting up"
          columns={[
            { title: 'Phase' },
            { title: 'Of' },
            { title: 'Begin, s', isRight: true },
            { title: 'End, s', isRight: true },
            { title: 'Took, s', isRight: true },
            ...(hasPath ? [{ title: 'To spare, s', isRight: true }] : []),
            ...(hasPath ? [{ title: 'Moved', isRight: true }] : []),
          ]}
          rows={sorted.map((phase) => [
            <Shown key="name" text={phase.phase} />,
            <Shown key="of" text={phase.process} />,
            fixed(phase.begin, 3),
            fixed(phase.end, 3),
            fixed(tookOf(phase), 3),
            ...(hasPath ? [phase.spareSeconds === undefined ? '–' : fixed(phase.spareSeconds, 3)] : []),
            ...(hasPath ? [movedText(phase)] : []),
          ])}
        />
      </Chart>
    </>
  );
}

function movedText({ bytes, movingSeconds = 0 }: StartPhase): string {
  if (bytes === undefined) return '–';
  return movingSeconds > 0 ? `${si(bytes, 'B')}, ${si(bytes / movingSeconds, 'B/s')}` : si(bytes, 'B');
}
