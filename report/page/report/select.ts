/** Which questions are shown, and in which order: by numbers alone, so that 100,000 take a few milliseconds. */
import type { QuestionsDocument } from '../../document/questions.js';

export const SHOWN = [
  { value: 'all', title: 'all' },
  { value: 'wrong', title: 'wrong' },
  { value: 'right', title: 'right' },
  { value: 'close', title: 'close' },
  { value: 'flipped', title: 'flipped' },
  { value: 'lost', title: 'right → wrong' },
  { value: 'gained', title: 'wrong → right' },
  { value: 'other', title: 'another choice' },
] as const;
export type Show = (typeof SHOWN)[number]['value'];
/** Those that need two runs. */
const OF_TWO: readonly Show[] = ['flipped', 'lost', 'gained', 'other'];

export const ORDERS = [
  { value: 'number', title: 'number' },
  { value: 'lowest', title: 'margin, lowest first' },
  { value: 'highest', title: 'margin, highest first' },
  { value: 'closest', title: 'margin, closest first' },
  { value: 'moved', title: 'margin, moved most' },
] as const;
export type Order = (typeof ORDERS)[number]['value'];

/** Closer than this many nats either way, by default. */
export const CLOSE = 0.5;

export interface Selection {
  readonly run: number;
  /** The run that flips are counted from. */
  readonly base: number;
  /** Place in the document's metrics. */
  readonly metric: number;
  readonly task: string;
  readonly show: Show;
  readonly order: Order;
  readonly close: number;
}

const pick = <T extends string>(all: readonly { readonly value: T }[], value: string | undefined): T =>
  all.find((each) => each.value === value)?.value ?? all[0]!.value;

const place = (text: string | undefined, length: number): number => {
  const number = text === undefined ? NaN : Number(text);
  return Number.isInteger(number) && number >= 0 && number < length ? number : 0;
};

/** What an address says. */
export function selectionOf(state: Readonly<Record<string, string>>, document: QuestionsDocument): Selection {
  const close = Number(state['close'] ?? CLOSE);
  const run = place(state['run'], document.runs.length);
  const show = pick(SHOWN, state['show']);
  const isOfTwo = OF_TWO.includes(show) || state['order'] === 'moved';
  return {
    run: isOfTwo && run === 0 && document.runs.length > 1 ? 1 : run,
    base: 0,
    show: document.runs.length < 2 && OF_TWO.includes(show) ? 'all' : show,
    metric: Math.max(0, document.metrics.indexOf(state['metric'] ?? '')),
    task: document.tasks.some(({ task }) => task === state['task']) ? state['task']! : '',
    order: pick(ORDERS, state['order']),
    close: Number.isFinite(close) && close >= 0 ? close : CLOSE,
  };
}

export const shownFor = (document: QuestionsDocument) =>
  SHOWN.filter(({ value }) => document.runs.length > 1 || !OF_TWO.includes(value));
export const ordersFor = (document: QuestionsDocument) =>
  ORDERS.filter(({ value }) => document.runs.length > 1 || value !== 'moved');

/** Whether a row is shown. */
export function isShown(document: QuestionsDocument, selection: Selection): (row: number) => boolean {
  const { run, base, metric, show, close } = selection;
  const [own, first] = [document.answers[run]!, document.answers[base]!];
  const [values, before] = [own.values[metric], first.values[metric]];
  switch (show) {
    case 'all':
      return () => true;
    case 'wrong':
      return (row) => values?.[row] === 0;
    case 'right':
      return (row) => values?.[row] === 1;
    case 'close':
      return (row) => {
        const margin = own.margins[row];
        return typeof margin === 'number' && Math.abs(margin) < close;
      };
    case 'flipped':
      return (row) =>
        typeof values?.[row] === 'number' && typeof before?.[row] === 'number' && values[row] !== before[row];
    case 'lost':
      return (row) => before?.[row] === 1 && values?.[row] === 0;
    case 'gained':
      return (row) => before?.[row] === 0 && values?.[row] === 1;
    case 'other':
      return (row) => own.chosen[row]! >= 0 && first.chosen[row]! >= 0 && own.chosen[row] !== first.chosen[row];
    default:
      return show satisfies never;
  }
}

/** By what rows are sorted, the least first; undefined: as they come. Rows without a margin are last. */
function keyOf(document: QuestionsDocument, { run, base, order }: Selection): ((row: number) => number) | undefined {
  const own = document.answers[run]!.margins;
  const before = document.answers[base]!.margins;
  const margin = (row: number): number => own[row] ?? NaN;
  switch (order) {
    case 'number':
      return undefined;
    case 'lowest':
      return margin;
    case 'highest':
      return (row) => -margin(row);
    case 'closest':
      return (row) => Math.abs(margin(row));
    case 'moved':
      return (row) => -Math.abs(margin(row) - (before[row] ?? NaN));
    default:
      return order satisfies never;
  }
}

/** Rows that are shown, in order. `matches`: those that a search has found, where there is one. */
export function selectRows(
  document: QuestionsDocument,
  selection: Selection,
  matches: Uint8Array | undefined,
): readonly number[] {
  const test = isShown(document, selection);
  const rows: number[] = [];
  for (const { task, firstRow, rows: length } of document.tasks) {
    if (selection.task !== '' && selection.task !== task) continue;
    for (let row = firstRow; row < firstRow + length; row++)
      if ((matches === undefined || matches[row] === 1) && test(row)) rows.push(row);
  }
  const key = keyOf(document, selection);
  if (key === undefined) return rows;
  const keys = new Float64Array(document.docIds.length);
  for (const row of rows) {
    const value = key(row);
    keys[row] = Number.isNaN(value) ? Infinity : value;
  }
  return rows.sort((a, b) => keys[a]! - keys[b]! || a - b);
}

/** The task of a row. */
export function taskOf({ tasks }: QuestionsDocument, row: number): string {
  return tasks.find(({ firstRow, rows }) => row >= firstRow && row < firstRow + rows)?.task ?? '';
}

/** A question's name in addresses: its task and number. */
export const nameOf = (document: QuestionsDocument, row: number): string =>
  `${document.docIds[row]!} ${taskOf(document, row)}`;

/** The row of a name; undefined where there is none. */
export function rowOf(document: QuestionsDocument, name: string): number | undefined {
  const [, number, task] = /^(\d+) (.*)$/s.exec(name) ?? [];
  const of = document.tasks.find((each) => each.task === task);
  if (of === undefined) return undefined;
  const at = document.docIds.indexOf(Number(number), of.firstRow);
  return at >= 0 && at < of.firstRow + of.rows ? at : undefined;
}
