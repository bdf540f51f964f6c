/** The kernels of mixtures of experts in the interpreter of kernel IR. */
import { expertOrder, largestOf } from './experts.js';
import type { SortByExpertKernel, ExpertRows, RouteKernel } from './kernel.js';
import type { KernelMemory } from './kernelMemory.js';

export function route(memory: KernelMemory, kernel: RouteKernel): void {
  const { count, chosen, normalized } = kernel;
  const logits = memory.read(kernel.logits);
  const experts = memory.write(kernel.experts);
  const weights = kernel.weights.map((name) => memory.write(name));
  for (let row = 0; row < logits.rows; row++) {
    const own = logits.data.subarray(row * count, (row + 1) * count);
    const most = largestOf(own, chosen);
    experts.data.set(most, row * chosen);
    const exp = own.map((z) => Math.exp(z - own[most[0]!]!));
    const among = normalized ? most.map((expert) => exp[expert]!) : [...exp];
    const total = among.reduce((sum, each) => sum + each, 0);
    most.forEach((expert, slot) => {
      weights[slot]!.data[row] = exp[expert]! / total;
    });
  }
  for (const name of [kernel.experts, ...kernel.weights]) memory.finish(name);
}

export function sortByExpert(memory: KernelMemory, kernel: SortByExpertKernel): void {
  const experts = memory.read(kernel.experts);
  const order = memory.write(kernel.order);
  const starts = memory.write(kernel.starts);
  const found = expertOrder(experts.data);
  found.order.forEach((pair, at) => {
    order.data[at] = Math.floor(pair / kernel.chosen);
  });
  kernel.places.forEach((name, slot) => {
    const places = memory.write(name);
    for (let row = 0; row < experts.rows; row++) places.data[row] = found.places[row * kernel.chosen + slot]!;
  });
  for (const expert of experts.data) {
    if (!(Number.isInteger(expert) && expert >= 0 && expert < kernel.count))
      throw new Error(`${kernel.experts} holds ${expert}, which is not an expert below ${kernel.count}.`);
    for (let after = expert + 1; after <= kernel.count; after++) starts.data[after]!++;
  }
}

/** The expert of each row. */
export function rowExperts(memory: KernelMemory, { starts, count }: ExpertRows, rows: number): (row: number) => number {
  const { data } = memory.read(starts);
  if (data[0] !== 0 || data[count] !== rows) throw new Error(`${starts} lists ${data[count]} rows of ${rows}.`);
  return (row) => data.findLastIndex((start, expert) => expert < count && start <= row);
}
