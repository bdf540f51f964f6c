/** The stages of a function: what every pass left, and what it changed. */
import type { Graph } from '../../ir/graph/graph.js';
import type { KernelModule } from '../../ir/kernel.js';
import type { Stage, Unit } from '../document/explore.js';
import { changes, unchanged, type Entry } from './changes.js';
import { fold, type Pool } from './fold.js';
import { programOfGraph, programOfKernels, type Program } from './program.js';

/** A stage as the compiler recorded it. */
export type RecordedProgram = Pick<Stage, 'name' | 'does' | 'reason' | 'changed'> &
  ({ readonly level: 'graph'; readonly graph: Graph } | { readonly level: 'kernels'; readonly module: KernelModule });

const programOf = (stage: RecordedProgram): Program =>
  stage.level === 'graph' ? programOfGraph(stage.graph) : programOfKernels(stage.module);

/**
 * The stages of one function, in order. `kernelOf`: the kernel, of those that the function has in the end, that
 * computes the op of a name.
 */
export function exploreStages(
  recorded: readonly RecordedProgram[],
  pool: Pool<Unit>,
  kernelOf: (name: string, level: Stage['level']) => number | undefined,
): readonly Stage[] {
  let last: { readonly level: Stage['level']; readonly program: Program } | undefined;
  const lastGraph = recorded.findLastIndex(({ level }) => level === 'graph');
  return recorded.map((stage, at) => {
    const { name, does, reason, level, changed } = stage;
    const program = changed || last === undefined ? programOf(stage) : last.program;
    const entries =
      last === undefined || last.level !== level || !changed ? unchanged(program) : changes(last.program, program);
    last = { level, program };
    // Names mean ops of the final graph, and kernels of the final module.
    const isFinal = at === lastGraph || level === 'kernels';
    const own = (entry: Entry): number | undefined =>
      entry.sign === '-' || !isFinal ? undefined : kernelOf(entry.id, level);
    const signed = (sign: Entry['sign']): number => entries.filter((entry) => entry.sign === sign).length;
    return {
      name,
      does,
      reason,
      level,
      changed,
      ops: program.ops.length,
      added: signed('+'),
      removed: signed('-'),
      rewritten: signed('~'),
      parts: fold(entries, { given: program.given, pool, kernelOf: own }),
    };
  });
}
