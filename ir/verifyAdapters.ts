/** Checks the kernels and weights of adapters: what a shrink kernel leaves, and what a contraction adds of it. */
import { ADAPTER_RANK, MAX_ADAPTER_SLOTS, MAX_ADAPTER_RANK, type AdapterRows } from './adapterRows.js';
import type { BufferDecl, GemmKernel, Segment, ShrinkKernel, WeightDecl } from './kernel.js';
import { sourceRows } from './packing.js';
import { isExtent, type KernelCheck, samePairing } from './verifyAnchors.js';

type Slots = Pick<AdapterRows, 'slot' | 'slots' | 'rank'>;

function verifySlots({ slot, slots, rank }: Slots, { rows }: Pick<GemmKernel, 'rows'>, check: KernelCheck): void {
  if (!isExtent(slots) || slots > MAX_ADAPTER_SLOTS) check.fail(`${slots} slots: there are 1 to ${MAX_ADAPTER_SLOTS}.`);
  if (!isExtent(rank) || rank % ADAPTER_RANK !== 0 || rank > MAX_ADAPTER_RANK)
    check.fail(`rank ${rank} is no multiple of ${ADAPTER_RANK} up to ${MAX_ADAPTER_RANK}.`);
  check.is(check.read(slot), ['i32'], rows, 1, 'slots of rows');
}

/** Checks that `name` is a weight of so many slots, in each a matrix [rows, k]. */
function verifySlotWeight(name: string, slots: number, rows: number, k: number, check: KernelCheck): WeightDecl {
  const weight = check.weight(name);
  if (weight?.slots === undefined) return check.fail(`weight '${name}' is no declared weight with slots.`);
  if (weight.slots.count !== slots) check.fail(`weight '${name}' has ${weight.slots.count} slots, not ${slots}.`);
  if (weight.k !== k || sourceRows(weight) !== rows)
    check.fail(`weight '${name}' has matrices [${sourceRows(weight)}, ${weight.k}], not [${rows}, ${k}].`);
  return weight;
}

export function verifyShrink(kernel: ShrinkKernel, check: KernelCheck): void {
  const { rows, k, slots, rank, parts } = kernel;
  if (!isExtent(k) || !isExtent(parts)) check.fail('k and parts are whole numbers, at least 1.');
  verifySlots(kernel, kernel, check);
  const a = check.read(kernel.a);
  check.is(a, ['f32', 'bf16', 'f16'], rows, k, 'the left operand');
  verifySlotWeight(kernel.weight, slots, parts * rank, k, check);
  verifySlotWeight(kernel.scale, slots, parts, 1, check);
  check.is(check.write(kernel.out), [a.dtype], rows, parts * rank, 'what is shrunk');
}

export function verifyAdapterRows(kernel: GemmKernel, adapter: AdapterRows, a: BufferDecl, check: KernelCheck): void {
  if (kernel.experts !== undefined || kernel.rounding !== undefined)
    check.fail('rows of experts, and rows that are rounded, have no adapters.');
  verifySlots(adapter, kernel, check);
  const shrunk = check.read(adapter.shrunk);
  check.is(shrunk, [a.dtype], kernel.rows, shrunk.columns, 'what is shrunk');
  if (typeof shrunk.columns !== 'number' || shrunk.columns % adapter.rank !== 0)
    check.fail(`'${shrunk.name}' is no whole number of parts of rank ${adapter.rank}.`);
  else {
    const parts = shrunk.columns / adapter.rank;
    verifySlotWeight(adapter.first.weight, adapter.slots, shrunk.columns, kernel.k, check);
    verifySlotWeight(adapter.first.scale, adapter.slots, parts, 1, check);
  }
  if (kernel.segments.every((segment) => segment.adapter === undefined))
    check.fail('it has rows of adapters, and no segment with one.');
}

export function verifySegmentAdapter({ adapter }: GemmKernel, segment: Segment, check: KernelCheck): void {
  if (segment.adapter === undefined) return;
  if (adapter === undefined) return check.fail(`segment '${segment.weight}' has an adapter, the kernel has no rows.`);
  const { weight: name, part } = segment.adapter;
  const matrices = segment.pairing.kind === 'interleave' ? 2 : 1;
  const weight = verifySlotWeight(name, adapter.slots, segment.columns * matrices, adapter.rank, check);
  if (!samePairing(weight.pairing, segment.pairing)) check.fail(`weight '${name}' is packed with another pairing.`);
  const parts = Number(check.read(adapter.shrunk).columns) / adapter.rank;
  if (!Number.isInteger(part) || part < 0 || part + matrices > parts)
    check.fail(`segment '${segment.weight}' reads part ${part} of ${parts}.`);
}
