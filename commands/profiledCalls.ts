/** Calls of a question set as a run makes them, to be timed launch by launch. */
import { fits, packTrees } from '../evaluate/packing.js';
import { layBatch } from '../evaluate/scoreBatches.js';
import { type Scorer, treeSharing, type WalkedBatch } from '../evaluate/scorer.js';
import { planTrees } from '../evaluate/treePlan.js';
import { groupCalls, groupContexts } from '../evaluate/twoPhase.js';
import { pathsOf } from '../evaluate/pathOrder.js';
import { walk } from '../evaluate/walk.js';
import { SCORE, STEP } from '../ir/function.js';
import type { CallArrays } from '../runtime/call.js';
import { inParts } from '../system/text.js';
import type { LoadedModel } from './loadModel.js';
import type { PackedQuestions } from './questionSet.js';
import { scoreInputs, stepInputs, stepShapeOf, walkLimits } from './scorer.js';
import type { ScoredTokens } from './work.js';

export interface ProfiledCall {
  readonly function: typeof SCORE | typeof STEP;
  readonly inputs: CallArrays;
  readonly batch: ScoredTokens & { readonly tokens: Int32Array };
}

/** The first `most` calls, of the function that the run has called. Those that continue paths must be made in order. */
export async function profiledCalls(
  model: LoadedModel,
  questions: PackedQuestions,
  scorer: Scorer,
  most: number,
): Promise<readonly ProfiledCall[]> {
  if (questions.cacheTokens === undefined) return scoredTrees(model, questions, scorer, most);
  const memory = { ...stepShapeOf(model.model), cacheTokens: questions.cacheTokens };
  const limits = walkLimits(model.executor, memory);
  const batches: Iterable<WalkedBatch> =
    questions.sharing === 'kv'
      ? groupCalls(
          [...groupContexts(pathsOf(questions.loaded.tokenized), { limits, groupTokens: Infinity }, String)[0]!.paths],
          { limits },
        )
      : walk((await inParts(questions.plan.order())).paths, limits);
  const calls: ProfiledCall[] = [];
  for (const { batch } of batches) {
    calls.push({ function: STEP, inputs: stepInputs(batch, memory, limits.filtered !== undefined), batch });
    if (calls.length === most) break;
  }
  return calls;
}

function scoredTrees(
  { executor }: LoadedModel,
  { loaded, sharing }: PackedQuestions,
  scorer: Scorer,
  most: number,
): readonly ProfiledCall[] {
  const shared = treeSharing(sharing);
  const { trees } = planTrees(loaded.tokenized, shared, scorer, true);
  const packs = packTrees(
    trees.filter((tree) => fits(tree, scorer)).map((tree) => ({ ...tree, orderLength: tree.longest })),
    scorer,
  );
  return packs.slice(0, most).map((pack) => {
    const { batch } = layBatch(
      pack.items.map(({ paths }) => paths),
      shared,
    );
    return { function: SCORE, inputs: scoreInputs(batch, executor), batch };
  });
}
