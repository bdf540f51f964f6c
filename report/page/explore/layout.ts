/** Places of boxes and flows, by dagre: layer under layer, along what flows. */
import { Graph, layout } from '@dagrejs/dagre';
import type { Box, Drawing } from './graphModel.js';

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
