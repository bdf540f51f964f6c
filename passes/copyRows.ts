/**
 * The function `copy`, made from the optimized `step`, and from `draft` where there is one: copy(from i32[N], to
 * i32[N]; k_0, v_0, …): row to[i] of every state of keys and values, and of their scales, becomes what row from[i] is
 * when the call begins; nowhere if to[i] is −1. A caller whose `from` and `to` overlap gets the same: every row is
 * read before one is written. It goes by what they write at their slots, so that it copies what they keep, whatever
 * the layers share and however narrow it is. Nothing in it depends on values: what is copied has the bits of what was
 * there.
 */
import { CompileError } from '../errors.js';
import { COPY } from '../ir/function.js';
import { type Graph, GraphBuilder, isOp, type Value } from '../ir/graph/graph.js';
import { versionsOf } from '../ir/graph/versions.js';
import { COPIED_ROWS, isPaged } from '../ir/stepping.js';

const COPIED = { name: COPIED_ROWS, counts: 'rows' } as const;

/** Throws CompileError where a function has no input of slots, or a state of keys is written twice. */
export function copyRows(functions: readonly Graph[]): Graph {
  const b = new GraphBuilder(COPY, [COPIED]);
  let inputs: { readonly from: Value; readonly to: Value } | undefined;
  const given = functions.flatMap((graph) => {
    const slot = graph.params.find(({ role }) => role?.kind === 'slot' && isPaged({ name: role.state }));
    if (slot?.role?.kind !== 'slot') throw new CompileError(`@${graph.name}: it keeps no rows that could be copied`);
    const { state } = slot.role;
    const { from, to } = (inputs ??= {
      from: b.param('from', 'i32', [COPIED.name], { kind: 'entry', state }),
      to: b.param('to', 'i32', [COPIED.name], { kind: 'slot', state }),
    });
    const versions = versionsOf(graph);
    return graph.nodes.flatMap((node) => {
      if (!isOp(node, 'write_rows') || node.operands.slot !== slot) return [];
      const { name, type } = versions.get(node.result)!.state;
      return b.scope(node.path, () => {
        const before = b.state(name, type.dtype, type.shape.map(Number));
        const rows = b.add('gather_rows', { x: before, index: from }, {}, `${name}_rows`);
        return [b.add('write_rows', { x: before, rows, slot: to }, {}, `${name}_copied`)];
      });
    });
  });
  return b.finish([], [], given);
}
