/** A part of a stage as a graph: groups that open, ops that are looked at. */
import { Graph, layout } from '@dagrejs/dagre';
import { useEffect, useId, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { type Box, changesText, type Drawing, type OpGroup, signShown, signText } from './graphModel.js';

export interface StageGraphProps {
  /** What it shows, in words. */
  readonly label: string;
  readonly drawing: Drawing;
  /** The op that is looked at. */
  readonly chosen: number | undefined;
  readonly onOp: (op: number) => void;
  readonly onGroup: (group: string) => void;
}

/** What pressing a box says to readers who do not see it. */
function labelOf({ kind, title, detail, sign, counts }: Box): string {
  const changes = counts === undefined ? signText(sign) : changesText(counts);
  const what = kind === 'group' ? 'group ' : kind === 'input' ? 'input ' : '';
  return `${what}${title}, ${detail}${changes === '' ? '' : `, ${changes}`}`;
}

/** Enter and the space bar press what has the focus. */
const onPress = (press: () => void) => ({
  onClick: press,
  onKeyDown: (event: KeyboardEvent) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    press();
  },
});

const Counts = ({ counts, x, y }: { readonly counts: OpGroup['counts']; readonly x: number; readonly y: number }) => (
  <text x={x} y={y} text-anchor="end" class="counts" aria-hidden="true">
    {(['+', '-', '~'] as const).map(
      (sign) =>
        counts[sign] > 0 && (
          <tspan key={sign} class={`sign ${CLASS[sign]}`} dx="4">
            {signShown(sign)}
            {counts[sign]}
          </tspan>
        ),
    )}
  </text>
);

/** What is wider than the page shrinks, as long as it can be read; beyond that it scrolls. */
const MIN_SCALE = 0.7;

const CLASS = { '': '', '+': 'added', '-': 'gone', '~': 'other' } as const;

function BoxView({
  box,
  place,
  isChosen,
  press,
}: {
  readonly box: Box;
  readonly place: Placed;
  readonly isChosen: boolean;
  readonly press: (() => void) | undefined;
}) {
  const { width, height } = place;
  const [left, top] = [place.x - width / 2, place.y - height / 2];
  const buttons =
    press === undefined ? { role: 'img' as const } : { role: 'button' as const, tabindex: 0, ...onPress(press) };
  const isOpenable = box.kind === 'group';
  return (
    <g
      class={`box ${box.kind} ${CLASS[box.sign]} ${isChosen ? 'chosen' : ''}`}
      data-box={box.id}
      data-group={box.group}
      aria-label={labelOf(box)}
      aria-expanded={isOpenable ? false : undefined}
      aria-pressed={box.kind === 'op' ? isChosen : undefined}
      {...buttons}
    >
      {isOpenable && <rect x={left + 4} y={top + 4} width={width} height={height} rx={7} class="behind" />}
      <rect x={left} y={top} width={width} height={height} rx={box.kind === 'input' ? height / 2 : 7} />
      <text x={place.x} y={top + 20} text-anchor="middle" class="name">
        {shortened(box.title)}
      </text>
      <text x={place.x} y={top + 35} text-anchor="middle" class="detail">
        {shortened(box.detail)}
      </text>
      {box.inside !== undefined &&
        insideLines(box.inside).map((line, i) => (
          <text key={i} x={place.x} y={top + 53 + 16 * i} text-anchor="middle" class="inside">
            {shortened(line)}
          </text>
        ))}
      {box.counts === undefined
        ? box.sign !== '' && (
            <text x={left + 9} y={top + 16} class={`sign ${CLASS[box.sign]}`} aria-hidden="true">
              {signShown(box.sign)}
            </text>
          )
        : Object.values(box.counts).some((count) => count > 0) && (
            <Counts counts={box.counts} x={left + width - 6} y={top + height - 6} />
          )}
    </g>
  );
}

export function StageGraph({ label, drawing, chosen, onOp, onGroup }: StageGraphProps) {
  const { width, height, places, paths } = useMemo(() => layoutOf(drawing), [drawing]);
  const region = useRef<HTMLDivElement>(null);
  const arrow = useId();
  /** The group that was opened or closed last: whoever did it goes on from there. */
  const moved = useRef<string | undefined>(undefined);
  const press = (group: string): void => {
    moved.current = group;
    onGroup(group);
  };
  useLayoutEffect(() => {
    // What is wider than the page shows what changed, or else its middle.
    const element = region.current!;
    if (moved.current !== undefined || element.scrollWidth <= element.clientWidth) return;
    const changed = drawing.boxes.filter(({ sign }) => sign !== '').map(({ id }) => places.get(id)!.x);
    const middle = changed.length === 0 ? width / 2 : changed.reduce((sum, x) => sum + x, 0) / changed.length;
    element.scrollLeft = (middle / width) * element.scrollWidth - element.clientWidth / 2;
  }, [drawing]);
  useEffect(() => {
    const group = moved.current;
    moved.current = undefined;
    if (group === undefined) return;
    const all = region.current!.querySelectorAll<SVGElement>('[data-group]');
    [...all].find(({ dataset }) => dataset['group'] === group)?.focus({ preventScroll: true });
  }, [drawing]);
  return (
    <div class="graph" ref={region} role="region" aria-label={label} tabIndex={0}>
      <svg
        viewBox={`0 0 ${Math.ceil(width)} ${Math.ceil(height)}`}
        style={{ width: `${Math.ceil(width)}px`, minWidth: `${Math.ceil(MIN_SCALE * width)}px` }}
      >
        <defs>
          <marker id={arrow} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0.8 L8 4 L0 7.2 Z" class="head" />
          </marker>
        </defs>
        {drawing.frames.map(({ id, group }) => {
          const place = places.get(id)!;
          const [left, top] = [place.x - place.width / 2, place.y - place.height / 2 - FRAME_HEAD];
          return (
            <g key={id} class="frame">
              <rect x={left} y={top} width={place.width} height={place.height + FRAME_HEAD} rx={9} />
              <g
                role="button"
                tabindex={0}
                aria-expanded="true"
                aria-label={`group ${group.title}, open`}
                data-group={group.id}
                {...onPress(() => press(group.id))}
              >
                <rect x={left} y={top} width={place.width} height={FRAME_HEAD} rx={9} class="bar" />
                <text x={left + 10} y={top + 16}>
                  ▾ {shortened(group.title)}
                </text>
              </g>
            </g>
          );
        })}
        {paths.map(({ from, to, path, isGone }) => (
          <path key={`${from} ${to}`} d={path} class={`flow ${isGone ? 'gone' : ''}`} marker-end={`url(#${arrow})`} />
        ))}
        {drawing.boxes.map((box) => {
          const { op, group } = box;
          const go = group !== undefined ? () => press(group) : op !== undefined ? () => onOp(op) : undefined;
          const isChosen = op !== undefined && op === chosen;
          return <BoxView key={box.id} {...{ box, isChosen }} press={go} place={places.get(box.id)!} />;
        })}
      </svg>
    </div>
  );
}

/** Places of boxes and flows, by dagre: layer under layer, along what flows. */

export interface Placed {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  /** Centres and sizes, by ids of boxes and frames. */
  readonly places: ReadonlyMap<string, Placed>;
  readonly paths: readonly {
    readonly from: string;
    readonly to: string;
    readonly path: string;
    readonly isGone: boolean;
  }[];
}

const LINE = 16;
/** Widths of a character of a title, and of what stands below it. */
const TITLE_WIDTH = 7.6;
const DETAIL_WIDTH = 6.4;
const PADDING = 12;
/** Room above an open group, for its title. */
export const FRAME_HEAD = 22;
const MAX_CHARACTERS = 44;
/** Columns of names in an opened kernel. */
const INSIDE_COLUMNS = 3;

export const shortened = (text: string): string =>
  text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS - 1)}…`;

/** Lines of an opened kernel: its ops, a few on each. */
export function insideLines(inside: readonly string[]): readonly string[] {
  const lines: string[] = [];
  for (let i = 0; i < inside.length; i += INSIDE_COLUMNS) lines.push(inside.slice(i, i + INSIDE_COLUMNS).join(' · '));
  return lines;
}

function sizeOf({ title, detail, inside = [] }: Box): { readonly width: number; readonly height: number } {
  const lines = insideLines(inside);
  const widest = Math.max(
    shortened(title).length * TITLE_WIDTH + 18,
    ...[detail, ...lines].map((text) => shortened(text).length * DETAIL_WIDTH),
  );
  return { width: Math.ceil(widest + 2 * PADDING), height: 12 + LINE * (2 + lines.length) };
}

type Point = { readonly x: number; readonly y: number };

/** A line through points, round at them. */
function curve(points: readonly Point[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return '';
  const at = ({ x, y }: Point): string => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const middles = rest.slice(0, -1).map((point, i) => {
    const next = rest[i + 1]!;
    return `Q ${at(point)} ${at({ x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 })}`;
  });
  return `M ${at(first)} ${middles.join(' ')} L ${at(rest.at(-1) ?? first)}`;
}

export function layoutOf({ boxes, frames, flows }: Drawing): Layout {
  const graph = new Graph({ compound: true });
  graph.setGraph({ rankdir: 'TB', nodesep: 18, ranksep: 26, edgesep: 8, marginx: 12, marginy: FRAME_HEAD + 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id } of frames) graph.setNode(id, {});
  for (const box of boxes) graph.setNode(box.id, sizeOf(box));
  for (const { id, parent } of boxes) if (parent !== undefined) graph.setParent(id, parent);
  for (const { from, to } of flows) graph.setEdge(from, to);
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  const placeOf = (id: string): Placed => graph.node(id) as Placed;
  const places = new Map([...boxes, ...frames].map(({ id }) => [id, placeOf(id)]));
  const paths = flows.map(({ from, to, isGone }) => {
    const { points } = graph.edge(from, to) as { readonly points: readonly Point[] };
    return { from, to, isGone, path: curve(points) };
  });
  return { width, height, places, paths };
}
