/** A chart, drawn by Observable Plot, with its figures as text for those who do not see it. */
import * as Plot from '@observablehq/plot';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export type DrawnPlot = ReturnType<typeof Plot.plot>;

export interface ChartProps {
  readonly title: string;
  /** What the chart says, in a sentence with its figures. */
  readonly summary: string;
  /** The chart for a width in pixels. Colours are custom properties, so that they follow the theme. */
  readonly options: (width: number) => Plot.PlotOptions;
  /** What `options` depends on. */
  readonly inputs: readonly unknown[];
  /** Called with each chart as it is drawn, for what a page does with pointers. */
  readonly onDraw?: (plot: DrawnPlot) => void;
  /** What explains a mark in the chart or in its figures. */
  readonly note?: string | undefined;
  /** The figures as a table. */
  readonly children?: ComponentChildren;
}

const FALLBACK_WIDTH = 640;

/** The width of an element, as it changes. */
function useWidth(): readonly [{ readonly current: HTMLDivElement | null }, number] {
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? FALLBACK_WIDTH)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [holder, width];
}

/** Moves what is shown of a point, as it is drawn, so far that none of it lies beside the chart. */
function keepTipsInside(chart: DrawnPlot, holder: HTMLElement): MutationObserver {
  const observer = new MutationObserver(() => {
    const room = holder.getBoundingClientRect();
    for (const tip of chart.querySelectorAll<SVGGElement>('[aria-label="tip"]')) {
      tip.style.translate = '';
      const { left, right, width } = tip.getBoundingClientRect();
      const by = left < room.left ? room.left - left : right > room.right ? room.right - right : 0;
      if (width > 0 && by !== 0) tip.style.translate = `${by}px 0`;
    }
  });
  observer.observe(chart, { childList: true, subtree: true });
  return observer;
}

/** An axis below a chart whose name lies in its middle, clear of the ticks. */
export const BELOW = { labelAnchor: 'center', labelOffset: 36 } as const;

export function Chart({ title, summary, options, inputs, onDraw, note, children }: ChartProps) {
  const [holder, width] = useWidth();
  useEffect(() => {
    if (holder.current === null || width === 0) return undefined;
    const chart = Plot.plot({
      marginBottom: 44,
      ...options(width),
      width,
      style: { background: 'transparent', overflow: 'visible' },
    });
    chart.setAttribute('aria-hidden', 'true');
    holder.current.replaceChildren(chart);
    onDraw?.(chart);
    const tips = keepTipsInside(chart, holder.current);
    return () => tips.disconnect();
  }, [width, ...inputs]);
  return (
    <figure class="chart">
      <figcaption>
        {title !== '' && <strong>{title}</strong>}
        <span>{summary}</span>
      </figcaption>
      <div ref={holder} class="plot" />
      {note !== undefined && <p class="note">{note}</p>}
      {children !== undefined && (
        <details class="figures">
          <summary>Figures</summary>
          {children}
        </details>
      )}
    </figure>
  );
}
