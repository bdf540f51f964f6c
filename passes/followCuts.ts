/**
 * Functions of one plan in one pipeline: they are cut at the same halves of layers, so that the weights of a layer, and
 * the keys and values that one function keeps there, are in the memory of one device.
 */
import { UserError } from '../errors.js';
import type { Stage } from '../ir/placement.js';
import type { FunctionPlan } from '../ir/plan.js';
import { halfOf } from './placeStages.js';

type Launches = Pick<FunctionPlan<unknown>, 'interface' | 'kernels' | 'launches'>;

/** The half of a layer that each launch belongs to. */
export function halvesOf({ kernels, launches }: Pick<Launches, 'kernels' | 'launches'>): readonly string[] {
  const paths = new Map(kernels.map((kernel) => [kernel.name, kernel.path]));
  return launches.map(({ kernel }) => halfOf(paths.get(kernel) ?? kernel));
}

/**
 * The stages of each function, where those of `placed` are given. Throws UserError where there are more stages than
 * halves: another function has no such cut.
 */
export function followCuts(
  functions: readonly Launches[],
  placed: Launches,
  stages: readonly Stage[],
): Readonly<Record<string, readonly Stage[]>> {
  const halves = halvesOf(placed);
  return Object.fromEntries(
    functions.map((fn) => {
      if (fn.interface.name === placed.interface.name) return [fn.interface.name, stages];
      const own = halvesOf(fn);
      const starts = stages.map(({ first }, i) => {
        if (i === 0) return 0;
        const start = halves[first] === halves[first - 1] ? -1 : own.indexOf(halves[first]!);
        if (start < 0)
          throw new UserError(
            `${stages.length} stages of a model that generates: a cut lies inside half a layer`,
            `use at most --parallel pp=${new Set(own).size}`,
          );
        return start;
      });
      return [
        fn.interface.name,
        starts.map((first, i): Stage => ({ first, end: starts[i + 1] ?? fn.launches.length })),
      ];
    }),
  );
}
