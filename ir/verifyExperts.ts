/** Checks the kernels and weights of mixtures of experts. */
import { MAX_CHOSEN, MAX_EXPERTS } from './experts.js';
import { productName } from './extents.js';
import type { SortByExpertKernel, RouteKernel, WeightDecl } from './kernel.js';
import type { KernelCheck } from './kernelCheck.js';

/** What is wrong with the matrices of a weight's experts; undefined if nothing is. */
export function expertsProblem({ experts, sources, layout }: WeightDecl): string | undefined {
  if (experts === undefined) return undefined;
  if (!Number.isInteger(experts) || experts < 1 || experts > MAX_EXPERTS)
    return `${experts} experts: there are from 1 to ${MAX_EXPERTS}.`;
  const each = sources.length / experts;
  if (layout === 'rows' || !Number.isInteger(each))
    return `${sources.length} sources are not the packed matrices of ${experts} experts.`;
  const isAlike = sources.every(({ rows, order }, i) => order === undefined && rows === sources[i % each]!.rows);
  return isAlike ? undefined : 'its experts have matrices of different rows.';
}

function counts({ count, chosen }: Pick<RouteKernel, 'count' | 'chosen'>, check: KernelCheck): void {
  if (!Number.isInteger(count) || count < 1 || count > MAX_EXPERTS)
    check.fail(`${count} experts: there are from 1 to ${MAX_EXPERTS}.`);
  if (!Number.isInteger(chosen) || chosen < 1 || chosen > Math.min(count, MAX_CHOSEN))
    check.fail(`${chosen} of ${count} experts: a row has from 1 to ${Math.min(count, MAX_CHOSEN)}.`);
}

export function verifyRoute(kernel: RouteKernel, check: KernelCheck): void {
  const { rows, count, chosen } = kernel;
  counts(kernel, check);
  check.is(check.read(kernel.logits), ['f32'], rows, count, 'logits of a router');
  check.is(check.write(kernel.experts), ['i32'], rows, chosen, 'chosen experts');
  if (kernel.weights.length !== chosen) check.fail(`${kernel.weights.length} weights for ${chosen} experts of a row.`);
  for (const name of kernel.weights) check.is(check.write(name), ['f32'], rows, 1, 'weights of experts');
}

export function verifySortByExpert(kernel: SortByExpertKernel, check: KernelCheck): void {
  const { rows, count, chosen } = kernel;
  counts(kernel, check);
  check.is(check.read(kernel.experts), ['i32'], rows, chosen, 'chosen experts');
  check.is(check.write(kernel.order), ['i32'], productName(rows, chosen), 1, 'rows of pairs');
  if (kernel.places.length !== chosen) check.fail(`${kernel.places.length} places for ${chosen} experts of a row.`);
  for (const name of kernel.places) check.is(check.write(name), ['i32'], rows, 1, 'places of pairs');
  check.is(check.write(kernel.starts), ['i32'], count + 1, 1, 'where the rows of experts begin');
}
