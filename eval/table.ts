/** The results tables for people: Markdown, in the public harness's columns and order. */
import { isRecord } from '../system/json.js';

type Block = Readonly<Record<string, unknown>>;
const RIGHT_ALIGNED: ReadonlySet<string> = new Set(['Version', 'n-shot', 'Value', 'Stderr']);
const COLUMNS = ['Tasks', 'Version', 'Filter', 'n-shot', 'Metric', '', 'Value', ' ', 'Stderr'] as const;

const blockOf = (value: unknown): Block => (isRecord(value) ? value : {});
const decimal = (value: unknown): string => (typeof value === 'number' ? value.toFixed(4) : String(value ?? 'N/A'));

interface Place {
  readonly name: string;
  readonly depth: number;
}

/** Groups before what is in them, then tasks that are in none; each once, in the order of their names. */
function places(shown: Block, subtasks: Block): readonly Place[] {
  const membersOf = (name: string): readonly string[] => {
    const members = Object.hasOwn(subtasks, name) ? subtasks[name] : undefined;
    return Array.isArray(members) ? (members as unknown[]).map(String).sort() : [];
  };
  const seen = new Set<string>();
  const visit = (name: string, depth: number): readonly Place[] => {
    if (seen.has(name)) return [];
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
  const alias = `${depth > 0 ? `${' '.repeat(depth)}- ` : ''}${String(block['alias'] ?? name)}`;
  const better = blockOf(of('higher_is_better'));
  const keys = Object.keys(block).filter((key) => /^.+?(?<!_stderr),./s.test(key));
  return keys.sort().map((key, i) => {
    const [metric = '', filter = ''] = key.split(/,(.*)/s);
    const isBetter = better[metric];
    return [
      i === 0 ? alias : '',
      i === 0 ? String(of('versions') ?? 'N/A') : '',
      filter,
      String(of('n-shot') ?? ''),
      metric,
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
  const widths = columns.map((name, i) => Math.max(name.trim().length, 3, ...rows.map((row) => row[i]?.length ?? 0)));
  const padded = (cell: string, i: number): string =>
    RIGHT_ALIGNED.has(columns[i] ?? '') ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0);
  const print = (cells: readonly string[]): string => `|${cells.map(padded).join('|')}|`;
  const rule = columns.map((name, i) =>
    RIGHT_ALIGNED.has(name) ? `${'-'.repeat((widths[i] ?? 1) - 1)}:` : '-'.repeat(widths[i] ?? 1),
  );
  return [print(columns.map((name) => name.trim())), `|${rule.join('|')}|`, ...rows.map(print)].join('\n');
}
