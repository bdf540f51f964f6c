/**
 * How often rounding to 16 bits sends a token to other experts: the routers of the families' checkpoints on questions
 * of HellaSwag, in float64 as the graph says, and in kernel IR with the roundings of a target. What a device adds, the
 * order of its sums, is less by far than bf16. `npm run test:slow -- routerFlips` prints the counts. Needs the data
 * folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { benchData } from '../../bench/inputs.js';
import { numericsOf } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { contextOf, type TokenizedQuestion } from '../../evaluate/tokenize.js';
import { buildTree, type Tree } from '../../evaluate/tree.js';
import type { Value } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { defined } from '../../system/defined.js';
import { ROOT } from '../e2e/support.js';
import { EXPERT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { loadAll } from '../support/loadTensors.js';

const SHARED = join(ROOT, '..', 'shared');
const FAMILIES = join(SHARED, 'checkpoints', 'families');
const QUESTIONS = 24;

const TARGETS: readonly (readonly [name: string, numerics: Numerics, most: number])[] = [
  ['f32', numericsOf('avx2'), 0],
  ['bf16 of a CPU', numericsOf('amx'), 0.05],
  ['bf16 of a GPU', cuda.compiler.numerics(cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16')), 0.05],
];

const treeOf = (question: TokenizedQuestion): Tree =>
  buildTree(
    question.continuations.map((continuation, choice) => ({
      ...{ question: 0, choice, context: contextOf(question, choice), continuation },
    })),
    'tree',
  );

/** The numbers of the columns that are not 0. */
const chosenOf = (mask: Float64Array, row: number, count: number): string =>
  Array.from({ length: count }, (_, at) => at)
    .filter((at) => mask[row * count + at] !== 0)
    .join();

interface Choice {
  readonly mask: Float64Array;
  readonly scores: Float64Array;
  readonly experts: number;
  /** Of their groups, where only some of them are kept. */
  readonly groups?: Choice;
}

/** Score by which the last expert that is chosen leads the first one that is not, or the last group does if by less. */
function gapOf({ mask, scores, experts, groups }: Choice, row: number): number {
  const at = (isChosen: boolean): number[] =>
    Array.from({ length: experts }, (_, i) => row * experts + i)
      .filter((i) => (mask[i] !== 0) === isChosen)
      .map((i) => scores[i]!);
  const gap = Math.min(...at(true)) - Math.max(...at(false));
  return groups === undefined ? gap : Math.min(gap, gapOf(groups, row));
}

describe.skipIf(!existsSync(FAMILIES))('experts that rounding changes', () => {
  it.each(EXPERT_CHECKPOINTS)('are few and near ties: %s', async (family) => {
    const folder = join(FAMILIES, family);
    const { model, tensors: places } = openCheckpoint(folder);
    const formats = new Map([...places].map(([name, { format }]) => [name, format]));
    const graph = model.graph({ mask: 'tree', dtypeOf: (name) => formats.get(name)! });
    const weights = new Map<string, Float64Array>();
    for (const [name, values] of await loadAll({ tensors: places })) weights.set(name, Float64Array.from(values));
    const { questions } = await benchData(join(SHARED, 'data', 'hellaswag_val.jsonl.gz'), folder, QUESTIONS);
    const trees = questions.map(treeOf);
    const wanted = trees.map((tree) => {
      const choices: Choice[] = [];
      const values = new Map<Value, Float64Array>();
      let groups: Choice | undefined;
      const params = paramsOf(tree);
      interpretGraph(graph, {
        ...{ sizes: { T: tree.tokens.length, R: tree.row.length }, weights, params },
        trace: ({ op, inputs, result }, { data, shape }) => {
          values.set(result, data);
          if (op !== 'top_mask') return;
          const scores = values.get(inputs[0]!)!;
          const own = { mask: data, scores, experts: shape.at(-1)! };
          // Groups of experts are chosen before the experts of those that are kept.
          if (result.name.startsWith('is_kept')) groups = own;
          if (!result.name.startsWith('is_chosen')) return;
          choices.push({ ...own, ...defined({ groups }) });
          groups = undefined;
          values.clear();
        },
      });
      return choices;
    });
    for (const [target, numerics, most] of TARGETS) {
      const module = lower(optimize(graph, numerics), numerics);
      const tables = new Set(module.weights.flatMap(({ sources }) => sources.map(({ tensor }) => tensor)));
      const tensors = new Map<string, RawTensor>();
      for (const { name, type } of graph.weights) {
        const [first, second] = type.shape as readonly number[];
        const [rows, columns] = second !== undefined ? [first!, second] : tables.has(name) ? [first!, 1] : [1, first!];
        tensors.set(name, { rows, columns, data: weights.get(name)! });
      }
      const routes = module.kernels.filter((kernel) => kernel.anchor === 'route');
      // Behind the first layer with experts, tokens also differ because they have been elsewhere.
      let [choices, flips, inFirst, widest] = [0, 0, 0, 0];
      const changed = new Set<string>();
      trees.forEach((tree, i) => {
        const sizes = { T: tree.tokens.length, R: tree.row.length };
        const buffers = new Map(
          module.buffers
            .filter(({ space }) => space === 'input')
            .map(({ name }) => [name, paramsOf(tree).get(name.replace('subtree_end', 'subtreeEnd'))!]),
        );
        const got = interpretModule(module, { sizes, buffers, tensors, round: true });
        routes.forEach(({ experts, rows, chosen }, layer) => {
          const list = got.get(experts)!;
          const own = wanted[i]![layer]!;
          for (let r = 0; r < (rows === 'T' ? sizes.T : sizes.R); r++) {
            const token = rows === 'T' ? r : tree.row[r]!;
            const mine = [...list.subarray(r * chosen, (r + 1) * chosen)].sort((a, b) => a - b).join();
            choices++;
            if (mine === chosenOf(own.mask, token, own.experts)) continue;
            flips++;
            changed.add(`${i} ${token}`);
            if (layer > 0) continue;
            inFirst++;
            widest = Math.max(widest, gapOf(own, token));
          }
        });
      });
      const tokens = trees.reduce((sum, tree) => sum + tree.tokens.length, 0);
      const share = ((100 * flips) / choices).toFixed(2);
      process.stdout.write(
        `${family}, ${target}: ${flips} of ${choices} choices of experts differ (${share} %), of ${changed.size} of ` +
          `${tokens} tokens; in the first layer ${inFirst}, which led by ${widest.toFixed(4)} of probability at most\n`,
      );
      expect(routes.length).toBeGreaterThan(2);
      expect(flips / choices).toBeLessThanOrEqual(most);
      expect(widest).toBeLessThan(0.02);
    }
  });
});

const paramsOf = ({ tokens, position, subtreeEnd, row, target }: Tree): ReadonlyMap<string, Float64Array> =>
  new Map(
    Object.entries({ tokens, position, subtreeEnd, row, target }).map(([name, values]) => [
      name,
      Float64Array.from(values),
    ]),
  );
