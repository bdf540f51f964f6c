/** Margins of questions in two runs: what lies off the diagonal moved; what crossed an axis flipped. */
import * as Plot from '@observablehq/plot';
import { withoutMiddle } from '../../document/namedRows.js';
import type { RunComparison } from '../../document/comparison.js';
import type { QuestionsDocument } from '../../document/questions.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { count, counted, fixed } from '../parts/numbers.js';
import { nameOf } from '../questions/select.js';
import { Section } from '../shell/Frame.js';

/** More dots are no more to see, and slower to draw: those that moved least are thinned. */
const MAX_DOTS = 4000;

interface Dot {
  readonly row: number;
  readonly first: number;
  readonly other: number;
  readonly isFlipped: boolean;
}

function dotsOf({ answers }: QuestionsDocument, first: number, other: number): Dot[] {
  const [a, b] = [answers[first]!.margins, answers[other]!.margins];
  return a.flatMap((margin, row) => {
    const beside = b[row];
    if (typeof margin !== 'number' || typeof beside !== 'number') return [];
    return [{ row, first: margin, other: beside, isFlipped: margin > 0 !== beside > 0 }];
  });
}

/** All that flipped, and of the others every so many. */
function thinned(dots: readonly Dot[]): readonly Dot[] {
  if (dots.length <= MAX_DOTS) return dots;
  const flipped = dots.filter(({ isFlipped }) => isFlipped).slice(0, MAX_DOTS / 2);
  const others = dots.filter(({ isFlipped }) => !isFlipped);
  const step = others.length / (MAX_DOTS - flipped.length);
  return [...Array.from({ length: MAX_DOTS - flipped.length }, (_, i) => others[Math.floor(i * step)]!), ...flipped];
}

export interface MarginScatterProps {
  readonly comparison: RunComparison;
  readonly names: readonly [string, string];
}

function Scatter({ document, comparison, names }: MarginScatterProps & { readonly document: QuestionsDocument }) {
  const dots = dotsOf(document, comparison.first, comparison.other);
  if (dots.length === 0) return null;
  const drawn = thinned(dots);
  const moved = dots.map(({ first, other }) => Math.abs(other - first)).sort((a, b) => a - b);
  const flipped = dots.filter(({ isFlipped }) => isFlipped).length;
  return (
    <section>
      <h3>Margins</h3>
      <Chart
        title="Margin of the right choice in both runs, in nats"
        summary={
          `${counted(dots.length, 'question')}; the median one moved by ${fixed(moved[moved.length >> 1]!, 4)} nats, ` +
          `the most by ${fixed(moved.at(-1)!, 4)}. ${count(flipped)} crossed 0 (crosses).` +
          (drawn.length < dots.length ? ` ${count(drawn.length)} are drawn.` : '')
        }
        inputs={[document, comparison]}
        options={(width) => ({
          height: Math.min(560, Math.max(320, width * 0.6)),
          marginLeft: 56,
          grid: true,
          x: { ...BELOW, label: withoutMiddle(names[0], Math.floor(width / 9)), nice: true },
          y: { label: withoutMiddle(names[1], Math.floor(width / 9)), nice: true },
          marks: [
            Plot.ruleX([0], { stroke: 'var(--faint)' }),
            Plot.ruleY([0], { stroke: 'var(--faint)' }),
            Plot.dot(drawn, {
              x: 'first',
              y: 'other',
              filter: ({ isFlipped }: Dot) => !isFlipped,
              r: 2,
              fill: 'var(--right)',
              fillOpacity: 0.45,
            }),
            Plot.dot(drawn, {
              x: 'first',
              y: 'other',
              filter: ({ isFlipped }: Dot) => isFlipped,
              symbol: 'times',
              r: 4,
              stroke: 'var(--wrong)',
              strokeWidth: 1.5,
            }),
            Plot.tip(
              drawn,
              Plot.pointer({
                x: 'first',
                y: 'other',
                title: ({ row, first, other }: Dot) =>
                  `question ${nameOf(document, row).replace(' ', ' of ')}\n${fixed(first, 4)} → ${fixed(other, 4)}`,
              }),
            ),
          ],
        })}
      />
    </section>
  );
}

export const MarginScatter = (props: MarginScatterProps) => (
  <Section name="questions">{(document) => <Scatter {...props} document={document} />}</Section>
);
