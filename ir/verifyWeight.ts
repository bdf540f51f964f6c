/** Verifier of weights as kernels read them, and the rules of names and extents that all declarations share. */
import type { BufferDecl, Pairing, WeightDecl } from './kernel.js';
import { sourceRows } from './packing.js';
import { expertsProblem } from './verifyExperts.js';
import { groupOf } from './groups.js';
import { orderProblem } from './rotaryOrder.js';
import { FORMATS, isCodeFormat, layoutProblem } from './storage.js';
import { shape } from './verifyProgram.js';

/** Names of declarations. They appear in generated source. */
export const IDENTIFIER = /^[a-z][a-z0-9_]{0,127}$/;
/** Largest extent of one dimension: element counts of two dimensions stay exact in a double. */
export const MAX_EXTENT = 2 ** 26;

export const isExtent = (n: number): boolean => Number.isInteger(n) && n >= 1 && n <= MAX_EXTENT;

/** Why `rows` rows cannot be paired so; undefined if they can. */
export function pairingProblem(pairing: Pairing, rows: number): string | undefined {
  if (pairing.kind === 'none') return undefined;
  if (!isExtent(pairing.width)) return `pairing width ${pairing.width} is not a whole number, at least 1.`;
  if (pairing.kind === 'interleave') return undefined;
  const { headDim, width } = pairing;
  if (!isExtent(headDim) || headDim % 2 !== 0) return `head dimension ${headDim} is not an even whole number.`;
  if ((headDim / 2) % width !== 0)
    return `pairing width ${width} does not divide half the head dimension, ${headDim / 2}.`;
  if (rows % headDim !== 0) return `${rows} columns are not whole heads of ${headDim}.`;
  return undefined;
}

/** Throws if `weight` breaks a rule; otherwise it is known from now on. */
export function verifyWeight(
  weight: WeightDecl,
  known: Map<string, WeightDecl>,
  buffers: ReadonlyMap<string, BufferDecl>,
): void {
  const fail = (what: string): never => {
    throw new Error(`Weight ${JSON.stringify(weight.name)}: ${what}`);
  };
  if (!IDENTIFIER.test(weight.name)) fail('the name does not match [a-z][a-z0-9_]*.');
  if (known.has(weight.name)) fail('declared twice.');
  if (!isExtent(weight.k) || weight.sources.some((source) => !isExtent(source.rows)))
    fail('k and the rows of every source are whole numbers, at least 1.');
  if (weight.sources.length === 0) fail('it has no sources.');
  for (const { order, rows } of weight.sources) {
    if (order === undefined) continue;
    if (weight.sources.length > 1) fail('a source whose rows are in another order is the only one.');
    const wrong = orderProblem(order, rows);
    if (wrong !== undefined) fail(`${wrong}.`);
  }
  const rows = sourceRows(weight);
  const misplaced = layoutProblem(weight.layout, weight.format);
  if (misplaced !== undefined) fail(`${misplaced}.`);
  if (weight.columnScale !== undefined && !FORMATS[weight.format].takesColumnScale)
    fail(`format ${weight.format} takes no column scale.`);
  if (weight.columnOffset !== undefined && (weight.columnScale === undefined || !Number.isFinite(weight.columnOffset)))
    fail('a column offset is a number, which is added to a column scale.');
  if (weight.scalesOf !== undefined && (weight.layout !== 'rows' || weight.format !== 'f32' || weight.k !== 1))
    fail('scales of rows are f32 in layout rows.');
  if ((weight.group !== undefined) !== (weight.format === 'u4'))
    fail(`format ${weight.format} ${weight.group === undefined ? 'needs' : 'has no'} groups of columns.`);
  if (weight.group !== undefined && groupOf(weight.group, weight.k) !== weight.group)
    fail(`groups of ${weight.group} columns of ${weight.k} cannot be packed.`);
  if (weight.group !== undefined && weight.experts !== undefined) fail('matrices of experts are not kept in groups.');
  if (
    weight.from !== undefined &&
    weight.scalesOf === undefined &&
    weight.group === undefined &&
    !isCodeFormat(weight.format)
  )
    fail(`${weight.format} are no codes.`);
  if (weight.layout === 'rows') {
    if (weight.columnScale !== undefined && weight.scalesOf === undefined)
      fail("layout rows is the checkpoint's own memory: it takes no column scale.");
    if (weight.pairing.kind !== 'none' || weight.sources.length !== 1)
      fail('layout rows has one source and no pairing.');
  }
  const mixed = expertsProblem(weight);
  if (mixed !== undefined) fail(mixed);
  const { experts = 1 } = weight;
  if (weight.pairing.kind === 'interleave') {
    const [first, second, ...more] = weight.sources.slice(0, weight.sources.length / experts);
    if (more.length > 0 || first?.rows !== second?.rows)
      fail('pairing interleave needs exactly two sources of equal rows.');
  }
  const wrong = pairingProblem(weight.pairing, rows / experts);
  if (wrong !== undefined) fail(wrong);
  const buffer = buffers.get(weight.name);
  if (
    buffer !== undefined &&
    (buffer.space !== 'weight' || buffer.rows !== rows || buffer.columns !== weight.k || weight.layout !== 'rows')
  ) {
    fail(
      'a buffer has the same name; it may only declare the same memory, ' +
        `a weight ${shape({ rows, columns: weight.k })} in layout rows.`,
    );
  }
  known.set(weight.name, weight);
}
