/** The kernels of one layer as the compiler left them: what each computes and its share of the arithmetic. */
import type { KernelRow } from '../../commands/inspectKernels.js';
import { arrow, box, FADED, label } from './svg.js';

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

const shortened = (text: string, most: number): string => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

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
