/** The few SVG elements that pictures of the documentation consist of. Text is escaped; numbers are pixels. */

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => ESCAPES[character] ?? character);

export interface TextStyle {
  readonly size?: number;
  readonly bold?: boolean;
  readonly colour?: string;
  readonly anchor?: 'start' | 'middle' | 'end';
}

export const INK = '#1f2937';
export const FADED = '#6b7280';

/** A line of text whose baseline is at y. */
export function label(x: number, y: number, text: string, style: TextStyle = {}): string {
  const { size = 13, bold = false, colour = INK, anchor = 'start' } = style;
  const weight = bold ? ' font-weight="600"' : '';
  return (
    `<text x="${x}" y="${y}" font-size="${size}" fill="${colour}" ` +
    `text-anchor="${anchor}"${weight}>${escaped(text)}</text>`
  );
}

/** A rounded box. */
export const box = (x: number, y: number, width: number, height: number, fill: string, stroke: string): string =>
  `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6" fill="${fill}" stroke="${stroke}"/>`;

/** A curve from the right edge of one box to the left edge of another. */
export function curve(x1: number, y1: number, x2: number, y2: number): string {
  const middle = (x1 + x2) / 2;
  return (
    `<path d="M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}" ` +
    'fill="none" stroke="#94a3b8" stroke-width="1.5"/>'
  );
}

/** A vertical arrow. */
export const arrow = (x: number, from: number, to: number): string =>
  `<path d="M${x} ${from} V${to - 2} m-4 -5 l4 6 l4 -6" fill="none" stroke="#94a3b8" stroke-width="1.5"/>`;

/** A whole picture on a light card, which is readable on pages of any colour. `title` is what a screen reader says. */
export function picture(width: number, height: number, title: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`,
    '     font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img">',
    `<title>${escaped(title)}</title>`,
    `<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="10" fill="#ffffff" stroke="#e5e7eb"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

/**
 * A question of the bundled data set as the token tree that is scored: each box is a run of tokens without a branch.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspectModel } from '../commands/inspect.js';
import { type KernelRow, kernelRows, typicalSize } from '../commands/inspectKernels.js';
import { fileTaskByName } from '../evaluate/fileTasks.js';
import type { Question } from '../evaluate/question.js';
import { tokenizeQuestions } from '../evaluate/tokenize.js';
import { buildTree, type Path, pathLength, type Tree } from '../evaluate/tree.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import { isProgram } from './command.js';
import { at } from '../system/at.js';

/** Tokens [first, end) of a tree, of which only the last may have several children. */
interface TokenRun {
  readonly first: number;
  readonly end: number;
  readonly children: readonly TokenRun[];
}

/** The run that starts at token `first`. */
function runFrom(tree: Tree, first: number): TokenRun {
  const end = tree.subtreeEnd[first]!;
  let last = first;
  while (last + 1 < end && tree.subtreeEnd[last + 1] === end) last++;
  const children: TokenRun[] = [];
  for (let child = last + 1; child < end; child = tree.subtreeEnd[child]!) children.push(runFrom(tree, child));
  return { first, end: last + 1, children };
}

/** The text in lines of at most `width` characters. */
function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + word.length < width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

const tokens = (count: number): string => (count === 1 ? '1 token' : `${count} tokens`);

export interface TreePanel {
  readonly parts: readonly string[];
  /** Tokens computed with the tree, and without sharing. */
  readonly shared: number;
  readonly separate: number;
}

const BLUE = { fill: '#eff6ff', stroke: '#60a5fa' };
const GREEN = { fill: '#f0fdf4', stroke: '#4ade80' };

/**
 * Draws the tree of one question's `paths` from (x, y), `width` wide: the common part on the left, the choices on the
 * right.
 */
export function treePanel(question: Question, paths: readonly Path[], x: number, y: number, width: number): TreePanel {
  const tree = buildTree(paths, 'tree');
  const root = runFrom(tree, 0);
  const rowHeight = 64;
  const height = root.children.length * rowHeight - 12;
  const left = width * 0.4;
  const lines = wrapped(question.context, 30);
  const top = y + height / 2 - (lines.length * 17 + 34) / 2;
  const parts = [box(x, top, left, lines.length * 17 + 34, BLUE.fill, BLUE.stroke)];
  lines.forEach((line, i) => parts.push(label(x + 10, top + 22 + 17 * i, line, { size: 12 })));
  const rootTokens = root.end - root.first;
  parts.push(
    label(x + 10, top + 24 + 17 * lines.length, `${tokens(rootTokens)}, computed once`, { size: 11, colour: FADED }),
  );
  root.children.forEach((branch, i) => {
    const branchY = y + i * rowHeight;
    const branchX = x + left + 46;
    // A leaf's tokens belong to one choice: the one whose path ends there.
    const choice = choiceOf(tree, paths, branch);
    const text = wrapped(choice === undefined ? 'several choices' : at(question.choices, choice), 38);
    parts.push(curve(x + left, y + height / 2, branchX, branchY + 26));
    parts.push(box(branchX, branchY, width - left - 46, 52, GREEN.fill, GREEN.stroke));
    text.slice(0, 2).forEach((line, j) => parts.push(label(branchX + 10, branchY + 18 + 15 * j, line, { size: 12 })));
    const count = branch.end - branch.first;
    parts.push(label(x + width - 10, branchY + 46, tokens(count), { size: 11, colour: FADED, anchor: 'end' }));
  });
  return { parts, shared: tree.tokens.length, separate: paths.reduce((sum, path) => sum + pathLength(path), 0) };
}

/** The choice to which the tokens of a run without children belong. */
function choiceOf(tree: Tree, paths: readonly Path[], run: TokenRun): number | undefined {
  if (run.children.length > 0) return undefined;
  const depth = tree.position[run.first]!;
  const path = paths.find(
    (candidate) =>
      pathLength(candidate) === depth + run.end - run.first &&
      candidate.continuation.at(depth - candidate.context.length) === tree.tokens[run.first],
  );
  return path?.choice;
}

/** The kernels of one layer as the compiler left them: what each computes and its share of the arithmetic. */

/** Names of graph ops as papers use them, for ops whose name does not say it. Consecutive repeats are counted. */
function opsText(ops: readonly string[]): string {
  const runs: { op: string; count: number }[] = [];
  for (const op of ops) {
    const last = runs.at(-1);
    if (last?.op === op) last.count++;
    else runs.push({ op, count: 1 });
  }
  return runs.map(({ op, count }) => (count === 1 ? op : `${count}× ${op}`)).join(', ');
}

const shortened = (text: string, max: number): string => (text.length <= max ? text : `${text.slice(0, max - 1)}…`);

/** Draws the kernels whose path starts with `layer` from (x, y), `width` wide, one below the other. */
export function kernelPanel(rows: readonly KernelRow[], layer: string, x: number, y: number, width: number): string[] {
  const own = rows.filter(({ path }) => path.startsWith(`${layer}.`));
  const flops = own.reduce((sum, row) => sum + row.flops, 0);
  return own.flatMap((row, i) => {
    const top = y + i * 64;
    const share = `${((100 * row.flops) / flops).toFixed(0)} % of FLOPs`;
    return [
      ...(i === 0 ? [] : [arrow(x + width / 2, top - 12, top)]),
      box(x, top, width, 52, '#fff7ed', '#fb923c'),
      label(x + 10, top + 19, row.path.slice(layer.length + 1), { size: 13, bold: true }),
      label(x + width - 10, top + 19, row.shape, { size: 11, colour: FADED, anchor: 'end' }),
      label(x + 10, top + 38, shortened(opsText(row.ops), 46), { size: 11 }),
      label(x + width - 10, top + 38, share, { size: 11, colour: FADED, anchor: 'end' }),
    ];
  });
}

/** The README's picture, made by the code that it shows: a question's token tree and the kernels of a layer. */

const TOKENIZER_MODULE = new URL('../models/tokenizer/tokenizer.js', import.meta.url).href;

const WIDTH = 980;
const TREE_WIDTH = 520;

/** The picture as SVG text, from the bundled model and data set below `root`. The text is the same every time. */
export async function drawPicture(root: string): Promise<string> {
  const model = join(root, 'models', 'demo');
  const [line = ''] = readFileSync(join(root, 'examples', 'everyday.jsonl'), 'utf8').split('\n');
  const question = fileTaskByName('hellaswag').read(JSON.parse(line), 0, 'examples/everyday.jsonl:1');
  const { spec } = describeTokenizer(model);
  const [tokenized] = await tokenizeQuestions([question], {
    tokenizer: { moduleUrl: TOKENIZER_MODULE, spec },
    workers: 0,
  });
  const { context, continuations } = tokenized!;
  const paths = continuations.map((continuation, choice): Path => ({ question: 0, choice, context, continuation }));

  const inspection = await inspectModel({ model, init: { kind: 'checkpoint' }, precision: 'f32', isa: 'portable' });
  const rows = kernelRows(inspection.plan, typicalSize(1024));

  const tree = treePanel(question, paths, 24, 76, TREE_WIDTH);
  const x = TREE_WIDTH + 56;
  return picture(WIDTH, 412, 'A question becomes a token tree; a layer becomes five kernels', [
    label(24, 34, 'A question becomes a tree of tokens', { size: 16, bold: true }),
    label(24, 55, `${tree.shared} tokens are computed instead of ${tree.separate}`, { colour: FADED }),
    ...tree.parts,
    label(x, 34, 'A layer becomes five kernels', { size: 16, bold: true }),
    label(x, 55, `${inspection.plan.kernels.length} kernels in all; names, shapes and ops as compiled`, {
      colour: FADED,
    }),
    ...kernelPanel(rows, 'layers.0', x, 76, WIDTH - x - 24),
  ]);
}

/** `npm run picture`: writes docs/picture.svg. */
if (isProgram(import.meta.url)) {
  const file = join('docs', 'picture.svg');
  writeFileSync(file, await drawPicture('.'));
  console.log(`${file} written`);
}
