/** Lines over a plane as SVG, and a page of such pictures with tables. Text is escaped; nothing is loaded. */
import { FADED, INK, label, picture } from './picture.js';

export interface Line {
  readonly name: string;
  /** In the order of x. Points that are no numbers interrupt it. */
  readonly points: readonly (readonly [x: number, y: number])[];
  /** Drawn as a horizontal line through the first y, for a figure without an x. */
  readonly isLevel?: boolean;
}

export interface LinePlot {
  readonly title: string;
  readonly x: string;
  readonly y: string;
  readonly lines: readonly Line[];
  /** Steps of x count as their logarithm. Default: as they are. */
  readonly isLogarithmic?: boolean;
  /** Whether points have dots. Default: they have where there are few. */
  readonly hasDots?: boolean;
}

const [WIDTH, HEIGHT] = [680, 340];
const [LEFT, RIGHT, TOP, BOTTOM] = [72, 20, 62, 48];
const COLOURS = ['#2563eb', '#d97706', '#059669', '#9333ea', '#dc2626', '#64748b'];
const TICKS = 5;
const MAX_DOTS = 60;

/** A round number of which there are about `TICKS` in the range. */
function tickStep(range: number): number {
  const rough = range / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) ?? 10;
  return factor * power;
}

const shown = (value: number): string =>
  Math.abs(value) >= 1e6
    ? `${Number((value / 1e6).toPrecision(3))}M`
    : Math.abs(value) >= 1e4
      ? `${Number((value / 1e3).toPrecision(3))}k`
      : String(Number(value.toPrecision(3)));

const isPoint = ([x, y]: readonly [number, number]): boolean => Number.isFinite(x) && Number.isFinite(y);

/** The plot; where there is no point, a picture that says so. */
export function linePlot({ title, x: xName, y: yName, lines, isLogarithmic = false, hasDots }: LinePlot): string {
  const points = lines.flatMap((line) => line.points.filter(isPoint));
  const heading = label(LEFT, 26, title, { size: 15, bold: true });
  if (points.length === 0)
    return picture(WIDTH, HEIGHT, title, [heading, label(LEFT, 80, 'There is nothing to show.', { colour: FADED })]);
  const placed = lines.filter(({ isLevel }) => isLevel !== true).flatMap((line) => line.points.filter(isPoint));
  const xs = (placed.length > 0 ? placed : points).map(([x]) => x);
  const [least, most] = [Math.min(...xs), Math.max(...xs)];
  const top = Math.max(...points.map(([, y]) => y), 0);
  const step = tickStep(top > 0 ? top : 1);
  const ceiling = Math.max(step, Math.ceil(top / step) * step);
  const scaled = (x: number): number => (isLogarithmic ? Math.log(x) : x);
  const [from, to] = [scaled(least), scaled(most)];
  const xOf = (x: number): number =>
    to > from ? LEFT + ((scaled(x) - from) / (to - from)) * (WIDTH - LEFT - RIGHT) : LEFT + (WIDTH - LEFT - RIGHT) / 2;
  const yOf = (y: number): number => HEIGHT - BOTTOM - (y / ceiling) * (HEIGHT - TOP - BOTTOM);
  const parts = [heading];
  for (let y = 0; y <= ceiling + step / 2; y += step)
    parts.push(
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${yOf(y)}" y2="${yOf(y)}" stroke="#e5e7eb"/>`,
      label(LEFT - 8, yOf(y) + 4, shown(y), { size: 11, colour: FADED, anchor: 'end' }),
    );
  for (const x of ticksOf(xs, least, most, isLogarithmic))
    parts.push(label(xOf(x), HEIGHT - BOTTOM + 18, shown(x), { size: 11, colour: FADED, anchor: 'middle' }));
  parts.push(
    label(WIDTH - RIGHT, HEIGHT - 10, xName, { size: 12, colour: INK, anchor: 'end' }),
    label(LEFT, TOP - 10, yName, { size: 12, colour: INK }),
  );
  let legend = WIDTH - RIGHT;
  lines.forEach(({ name, points: own, isLevel = false }, i) => {
    const colour = COLOURS[i % COLOURS.length]!;
    const ends: readonly (readonly [number, number])[] = isLevel
      ? own.slice(0, 1).flatMap(([, y]) => [[least, y] as const, [most, y] as const])
      : own;
    const dash = isLevel ? ' stroke-dasharray="6 4"' : '';
    for (const run of runsOf(ends)) {
      const path = run.map(([x, y], k) => `${k === 0 ? 'M' : 'L'}${xOf(x).toFixed(1)} ${yOf(y).toFixed(1)}`).join(' ');
      parts.push(`<path d="${path}" fill="none" stroke="${colour}" stroke-width="1.8"${dash}/>`);
      if ((hasDots ?? own.length <= MAX_DOTS) && !isLevel)
        for (const [x, y] of run)
          parts.push(`<circle cx="${xOf(x).toFixed(1)}" cy="${yOf(y).toFixed(1)}" r="3" fill="${colour}"/>`);
    }
    if (lines.length < 2) return;
    parts.push(label(legend, TOP - 10, name, { size: 12, colour, anchor: 'end' }));
    legend -= 16 + 7 * name.length;
  });
  return picture(WIDTH, HEIGHT, `${title}: ${yName} by ${xName}`, parts);
}

/** Values that are marked on the axis of x. */
function ticksOf(xs: readonly number[], least: number, most: number, isLogarithmic: boolean): readonly number[] {
  const all = [...new Set(xs)];
  if (isLogarithmic || all.length <= 10) return all;
  const step = tickStep(most - least);
  const ticks: number[] = [];
  for (let x = Math.ceil(least / step) * step; x <= most; x += step) ticks.push(x);
  return ticks;
}

function runsOf(points: readonly (readonly [number, number])[]): (readonly (readonly [number, number])[])[] {
  const runs: (readonly [number, number])[][] = [[]];
  for (const point of points)
    if (isPoint(point)) runs.at(-1)!.push(point);
    else runs.push([]);
  return runs.filter((run) => run.length > 0);
}

export interface PlotSection {
  readonly title: string;
  /** What was measured, in sentences. */
  readonly about: string;
  readonly plots: readonly LinePlot[];
  /** The first row has the names of columns. */
  readonly table?: readonly (readonly string[])[];
}

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => ESCAPES[character]!);

const STYLE =
  'body{font:15px/1.5 system-ui,sans-serif;color:#1f2937;background:#f8fafc;max-width:44rem;margin:2rem auto;' +
  'padding:0 1rem}svg{max-width:100%;height:auto;margin:.5rem 0}div{overflow-x:auto}' +
  'table{border-collapse:collapse;font-size:13px}td,th{padding:.25rem .6rem;border-bottom:1px solid #e5e7eb;' +
  'text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}';

const tableHtml = ([head = [], ...rows]: readonly (readonly string[])[]): string => {
  const line = (cells: readonly string[], tag: string): string =>
    `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join('')}</tr>`;
  return `<div><table>${line(head, 'th')}${rows.map((row) => line(row, 'td')).join('')}</table></div>`;
};

/** A whole HTML page, which opens from a disk. */
export function plotPage(title: string, about: string, sections: readonly PlotSection[]): string {
  const body = sections.map(({ title: name, about: of, plots, table }) =>
    [
      `<section><h2>${escaped(name)}</h2><p>${escaped(of)}</p>`,
      ...plots.map(linePlot),
      table === undefined ? '' : tableHtml(table),
      '</section>',
    ].join('\n'),
  );
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`,
    `<title>${escaped(title)}</title><style>${STYLE}</style></head><body>`,
    `<h1>${escaped(title)}</h1><p>${escaped(about)}</p>`,
    ...body,
    '</body></html>',
    '',
  ].join('\n');
}
