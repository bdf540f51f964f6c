/** The results tables for people: Markdown, in the public harness's columns and order. */
import { clipped, isGiven, isRecord } from '../system/json.js';

type Block = Readonly<Record<string, unknown>>;
const RIGHT_ALIGNED: ReadonlySet<string> = new Set(['Version', 'n-shot', 'Value', 'Stderr']);
const COLUMNS = ['Tasks', 'Version', 'Filter', 'n-shot', 'Metric', '', 'Value', ' ', 'Stderr'] as const;

/** Groups within groups: more than any results have. */
const MAX_DEPTH = 64;

const blockOf = (value: unknown): Block => (isRecord(value) ? value : {});
/** A cell is one line of bounded length, whatever a results file holds. */
const cellOf = (value: unknown, otherwise: string): string =>
  clipped(typeof value === 'string' ? value : isGiven(value) ? JSON.stringify(value) : otherwise).replace(
    /[\p{Cc}\u2028\u2029]/gu,
    '·',
  );
const decimal = (value: unknown): string => (typeof value === 'number' ? value.toFixed(4) : cellOf(value, 'N/A'));

interface Place {
  readonly name: string;
  readonly depth: number;
}

/** Groups before what is in them, then tasks that are in none; each once, in the order of their names. */
function places(shown: Block, subtasks: Block): readonly Place[] {
  const membersOf = (name: string): readonly string[] => {
    const members = Object.hasOwn(subtasks, name) ? subtasks[name] : undefined;
    return Array.isArray(members) ? members.filter((member) => typeof member === 'string').sort() : [];
  };
  const seen = new Set<string>();
  const visit = (name: string, depth: number): readonly Place[] => {
    if (seen.has(name) || depth > MAX_DEPTH) return [];
    seen.add(name);
    const within = membersOf(name).flatMap((member) => visit(member, depth + 1));
    return Object.hasOwn(shown, name) ? [{ name, depth }, ...within] : within;
  };
  const groups = Object.keys(subtasks).sort();
  const within = new Set(groups.flatMap(membersOf));
  const others = Object.keys(shown).filter((name) => !within.has(name) && !Object.hasOwn(subtasks, name));
  return [...groups.filter((name) => !within.has(name)), ...others.sort()].flatMap((name) => visit(name, 0));
}

/** One row for each metric, in the order of their names. A task is named on its first row. */
function rowsOf({ name, depth }: Place, block: Block, results: Block): string[][] {
  const of = (field: string): unknown => {
    const found = blockOf(results[field]);
    return Object.hasOwn(found, name) ? found[name] : undefined;
  };
  const alias = `${depth > 0 ? `${' '.repeat(depth)}- ` : ''}${cellOf(block['alias'], cellOf(name, ''))}`;
  const better = blockOf(of('higher_is_better'));
  const keys = Object.keys(block).filter((key) => /^.+?(?<!_stderr),./s.test(key));
  return keys.sort().map((key, i) => {
    const [metric = '', filter = ''] = key.split(/,(.*)/s);
    const isBetter = better[metric];
    return [
      i === 0 ? alias : '',
      i === 0 ? cellOf(of('versions'), 'N/A') : '',
      cellOf(filter, ''),
      cellOf(of('n-shot'), ''),
      cellOf(metric, ''),
      typeof isBetter === 'boolean' ? (isBetter ? '↑' : '↓') : '',
      decimal(block[key]),
      '±',
      decimal(block[`${metric}_stderr,${filter}`]),
    ];
  });
}

/** Tasks and groups, and the groups alone where there are some. `results`: the content of results_*.json. */
export function formatTable(results: Block): string {
  const subtasks = blockOf(results['group_subtasks']);
  const tableOf = (field: string, first: string): string => {
    const shown = blockOf(results[field]);
    const all = places(shown, subtasks);
    return printRows(
      first,
      all.flatMap((place) => rowsOf(place, blockOf(shown[place.name]), results)),
    );
  };
  return [tableOf('results', 'Tasks'), ...('groups' in results ? [tableOf('groups', 'Groups')] : [])].join('\n\n');
}

/** `first`: the heading of the first column; the others are fixed. */
function printRows(first: string, rows: readonly (readonly string[])[]): string {
  const columns = [first, ...COLUMNS.slice(1)];
  const widths = columns.map((name, i) =>
    rows.reduce((most, row) => Math.max(most, row[i]?.length ?? 0), Math.max(name.trim().length, 3)),
  );
  const padded = (cell: string, i: number): string =>
    RIGHT_ALIGNED.has(columns[i] ?? '') ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0);
  const print = (cells: readonly string[]): string => `|${cells.map(padded).join('|')}|`;
  const rule = columns.map((name, i) =>
    RIGHT_ALIGNED.has(name) ? `${'-'.repeat((widths[i] ?? 1) - 1)}:` : '-'.repeat(widths[i] ?? 1),
  );
  return [print(columns.map((name) => name.trim())), `|${rule.join('|')}|`, ...rows.map(print)].join('\n');
}
