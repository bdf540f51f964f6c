/** The epilogue of a wgmma tile: one row of a consumer thread's accumulators, in batches of columns. */
import type { Segment } from '../../../ir/kernel.js';
import type { Access, Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf } from '../../../ir/scalar.js';
import type { CudaOperands, Operand } from '../operands.js';
import { physicalColumns } from '../operands.js';
import type { Fragment, RowPrologue } from '../programs.js';
import { fragmentEpilogue, fragmentStep, indent } from '../programs.js';

/** 8-column groups whose operands are loaded before the first is used: enough loads in flight, few registers. */
const BATCH = 8;
const DEPTH = 7;

/**
 * Statements for row `row` of the tile: `m` is the 64-row instruction, `h` the row 8 further, `column0` the tile's
 * first physical column in the segment, `from` the row values of the tile.
 */
export function epilogueText(segment: Segment, operands: CudaOperands, prologue: RowPrologue, tn: number): string {
  const groups = tn / 8;
  const step = fragmentStep(segment) / 8;
  const batch = Math.max(step, Math.floor(BATCH / step) * step);
  const loads = segment.pairing.kind === 'none' ? elementLoads(segment, operands) : [];
  const print = (first: string, count: number, depth: number): string => batchText(segment, operands, prologue, tn, loads, first, count, depth);
  if (loads.length === 0 || groups <= batch) return print('0', groups, DEPTH);
  const whole = Math.floor(groups / batch);
  const rest = groups - whole * batch;
  return [
    '#pragma unroll\n', indent([`for (int batch_ = 0; batch_ < ${whole}; batch_++) {`], DEPTH), print(`batch_ * ${batch}`, batch, DEPTH + 1), indent(['}'], DEPTH),
    ...(rest === 0 ? [] : [print(String(whole * batch), rest, DEPTH)]),
  ].join('');
}

/** Buffers that the segment's programs read at the element itself, each once. */
function elementLoads({ outputs }: Segment, operands: CudaOperands): Operand[] {
  const found = new Map<string, Operand>();
  const visit = (s: Scalar): void => {
    if (s.op === 'load' && s.access.kind === 'element' && s.access.via === undefined) {
      const operand = operands.get(s.buffer);
      if (operand.columns !== 1) found.set(s.buffer, operand);
    }
    childrenOf(s).forEach(visit);
  };
  outputs.forEach(({ value }) => visit(value));
  return [...found.values()];
}

/** `count` groups from group `first` on: their loads, then their programs and stores. */
function batchText(
  segment: Segment, operands: CudaOperands, prologue: RowPrologue, tn: number, loads: readonly Operand[], first: string, count: number, depth: number,
): string {
  const isWhole = physicalColumns(segment.columns, segment.pairing) % tn === 0 && physicalColumns(segment.columns, segment.pairing) === lyingColumns(segment);
  const origin = first === '0' ? 'column0' : `column0 + 8 * (${first})`;
  const loaded = loads.map((operand, i) => ({ operand, name: `l${i}_` }));
  const before = loaded.flatMap(({ operand, name }) => {
    const address = `${operands.base(operand)} + (long long)row * ${operand.stride} + column_`;
    return [
      `tw_f2 ${name}[${count}];`, '#pragma unroll', `for (int group_ = 0; group_ < ${count}; group_++) {`,
      `  const int column_ = ${origin} + 8 * group_ + 2 * quad;`,
      `  ${name}[group_] = ${isWhole ? '' : `column_ >= ${segment.columns} ? tw_f2{ 0.0f, 0.0f } : `}tw_load2_${operand.dtype}(${address});`, '}',
    ];
  });
  const fragment: Fragment = {
    row: 'row', isStored: 'isStored', prefix: 'e', groups: count, column: `(${origin})`, quad: 'quad', isWhole,
    acc: (group, lane) => `acc[m][4 * (${first === '0' ? group : `${first} + ${group}`}) + 2 * h + ${lane}]`,
    given: prologue.given(`(from + local * ${prologue.scalars.length})`),
    loaded: (buffer: string, access: Access, group: string, lane: number) => {
      const own = access.kind === 'element' && access.via === undefined ? loaded.find(({ operand }) => operand.name === buffer) : undefined;
      return own === undefined ? undefined : `${own.name}[${group}].${lane === 0 ? 'x' : 'y'}`;
    },
  };
  const program = fragmentEpilogue(segment, operands, fragment, loaded.length === 0 ? depth : depth + 1);
  return loaded.length === 0 ? program : `${indent(['{', ...before.map((line) => (line.startsWith('#') ? line : `  ${line}`))], depth).replace(/^ +#/gm, '#')}${program}${indent(['}'], depth)}`;
}

/** Physical columns before padding. */
const lyingColumns = ({ columns, pairing }: Segment): number =>
  (pairing.kind === 'interleave' ? 2 * pairing.width * Math.ceil(columns / pairing.width) : columns);
