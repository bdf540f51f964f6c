import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { isProgram } from './command.js';

/**
 * Makes docs/performance.md from docs/performance.json: `npm run docs:performance` writes the page, and a test says
 * that it is up to date. Ratios are computed here, from the figures.
 */

const text = z.string().min(1);
const better = z.enum(['lower', 'higher']);
const figure = z.number().positive();
const range = z.tuple([figure, figure]).refine(([from, to]) => from < to, 'the smaller figure comes first');

const row = z.strictObject({
  what: text,
  hardware: text,
  /** The day of the measurement. */
  date: z.iso.date(),
  /** The commit that recorded it. */
  commit: z.string().regex(/^[0-9a-f]{8}$/),
  ours: z.union([figure, range]),
  peer: figure.optional(),
  peerName: text.optional(),
  unit: text.optional(),
  better: better.optional(),
});

const workload = z.strictObject({
  title: text,
  about: text,
  command: text,
  unit: text,
  better,
  /** What the figures of `peer` are of, unless a row says otherwise. */
  peer: text.optional(),
  rows: z.array(row).min(1),
});

const schema = z.strictObject({ workloads: z.array(workload).min(1) });

type Row = z.infer<typeof row>;
type Workload = z.infer<typeof workload>;

/** The page. Throws where the data is not of the schema. */
export function performancePage(data: unknown): string {
  const { workloads } = schema.parse(data);
  return `${[HEAD, ...workloads.map(section)].join('\n\n')}\n`;
}

const HEAD = `# Performance

<!-- Made from performance.json by \`npm run docs:performance\`. -->

${wrap(
  'Figures with the commands that repeat them, run from the root of a built checkout. `DATA` is hellaswag_val.jsonl; ' +
    'the [README](../README.md) says where to get it. Machines and clocks differ, so compare a figure with its peer ' +
    'and with nothing else: both ran in the same minutes unless the text says otherwise. The commit is the one that ' +
    'recorded the figure. The [log](log/README.md) has everything that was measured and what was tried.',
)}`;

function section(work: Workload): string {
  const columns = tableRow('what', 'hardware', 'date', 'commit', 'ours', 'peer', 'ratio');
  const table = [columns, `|${'---|'.repeat(4)}${'---:|'.repeat(3)}`, ...work.rows.map((one) => figures(work, one))];
  return [`## ${work.title}`, `${wrap(work.about)}\n\`${work.command}\``, table.join('\n')].join('\n\n');
}

function figures(work: Workload, { what, hardware, date, commit, ours, peer, ...own }: Row): string {
  const unit = own.unit ?? work.unit;
  const isLowerBetter = (own.better ?? work.better) === 'lower';
  const shown = Array.isArray(ours) ? ours.map(decimal).join(' to ') : decimal(ours);
  const other = peer === undefined ? '' : `${decimal(peer)} ${unit} (${own.peerName ?? work.peer ?? 'peer'})`;
  const ratio = peer === undefined || Array.isArray(ours) ? '' : (isLowerBetter ? peer / ours : ours / peer).toFixed(2);
  return tableRow(what, hardware, date, commit, `${shown} ${unit}`, other, ratio);
}

function tableRow(...cells: string[]): string {
  return `| ${cells.join(' | ')} |`;
}

function decimal(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 4 });
}

/** Lines of at most 120 characters. */
function wrap(paragraph: string): string {
  const lines: string[] = [];
  for (const word of paragraph.split(' ')) {
    const last = lines.at(-1);
    if (last === undefined || last.length + 1 + word.length > 120) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines.join('\n');
}

if (isProgram(import.meta.url)) {
  const data: unknown = JSON.parse(readFileSync('docs/performance.json', 'utf8'));
  writeFileSync('docs/performance.md', performancePage(data));
}
