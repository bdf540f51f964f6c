/** A small chart of what was read last: one or two lines, with its figures as text. */
import type { ComponentChildren } from 'preact';

export interface Series {
  readonly name: string;
  /** One a reading; undefined where nothing happened. */
  readonly values: readonly (number | undefined)[];
}

export interface SparkProps {
  readonly title: string;
  readonly series: readonly Series[];
  readonly show: (value: number) => string;
  /** The top of the chart; default: the highest value. */
  readonly top?: number;
  /** Readings from the left to the right edge. */
  readonly length: number;
  readonly note?: ComponentChildren;
}

const [WIDTH, HEIGHT] = [240, 44];

/** Lines between neighbouring readings; a reading alone is a short one. */
function pathOf(values: readonly (number | undefined)[], top: number, length: number): string {
  const first = length - values.length;
  let path = '';
  let isDrawing = false;
  values.forEach((value, i) => {
    if (value === undefined) {
      isDrawing = false;
      return;
    }
    const x = ((first + i) / Math.max(1, length - 1)) * WIDTH;
    const y = HEIGHT - 2 - (top === 0 ? 0 : Math.min(1, value / top)) * (HEIGHT - 4);
    path += `${isDrawing ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!isDrawing) path += 'h1';
    isDrawing = true;
  });
  return path;
}

const lastOf = (values: readonly (number | undefined)[]): number | undefined => values.findLast((v) => v !== undefined);

export function Spark({ title, series, show, top, length, note }: SparkProps) {
  const finite = series.flatMap(({ values }) => values.filter((value) => value !== undefined && value !== Infinity));
  const highest = top ?? Math.max(0, ...finite.map(Number));
  const said = series.map(({ name, values }) => {
    const last = lastOf(values);
    return { name, shown: last === undefined ? '–' : show(last) };
  });
  return (
    <figure class="spark" data-chart={title}>
      <figcaption>{title}</figcaption>
      <dl>
        {said.map(({ name, shown }, i) => (
          <div key={name} class={i === 0 ? 'first' : 'second'}>
            <dt>{name}</dt>
            <dd>{shown}</dd>
          </div>
        ))}
      </dl>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}, up to ${show(highest)}`}
      >
        <path class="floor" d={`M0 ${HEIGHT - 1}H${WIDTH}`} />
        {series.map(({ name, values }, i) => (
          <path key={name} class={i === 0 ? 'first' : 'second'} d={pathOf(values, highest, length)} />
        ))}
      </svg>
      <p>
        up to {show(highest)}
        {note}
      </p>
    </figure>
  );
}
