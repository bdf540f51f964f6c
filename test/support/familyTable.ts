/** The table of docs/families.md that says what each family does: it is what tests of all families try. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const DOCUMENT = join(import.meta.dirname, '..', '..', 'docs', 'families.md');
const HEADING = '## What each family does';

/** The columns, by the uses that are tried. */
const USES = [
  'score',
  'generate',
  'serve',
  'dp, pp',
  'artifact',
  '8-bit caches',
  'int8',
  'GPTQ',
  'FP8 (Hopper)',
  'GGUF',
] as const;
export type FamilyUse = (typeof USES)[number];

export interface TableRow {
  /** Folders of checkpoints/families. */
  readonly checkpoints: readonly string[];
  /** `yes`, or what the refusal says. */
  readonly uses: Readonly<Record<FamilyUse, string>>;
}

const cellsOf = (line: string): readonly string[] =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());

/** The rows of the table. Throws where its columns are not those that are tried. */
export function familyTable(text: string = readFileSync(DOCUMENT, 'utf8')): readonly TableRow[] {
  const [, section = ''] = text.split(`${HEADING}\n`);
  const [table = ''] = /(?:^\|.*\n)+/m.exec(section.split('\n## ')[0]!) ?? [];
  const [header = '', , ...lines] = table.trimEnd().split('\n');
  const columns = cellsOf(header).slice(1);
  if (columns.join() !== USES.join())
    throw new Error(`the table's columns are ${columns.join()}: ${USES.join()} wanted`);
  return lines.map((line) => {
    const [names = '', ...cells] = cellsOf(line);
    return {
      checkpoints: names.split(', '),
      uses: Object.fromEntries(USES.map((use, i) => [use, cells[i] ?? ''])) as Record<FamilyUse, string>,
    };
  });
}

/** What the table says of a checkpoint. */
export function usesOf(checkpoint: string): TableRow['uses'] {
  const row = familyTable().find(({ checkpoints }) => checkpoints.includes(checkpoint));
  if (row === undefined) throw new Error(`docs/families.md does not say what ${checkpoint} does`);
  return row.uses;
}
