/**
 * Evaluation: tasks, tokens, trees, micro-batches, scores, results. The model is behind a Scorer and a tokenizer
 * module.
 *
 * The usual order: loadDataset → tokenizeDataset (while the model loads) → scoreQuestions → writeResults →
 * formatTable.
 */
export { loadDataset, type Dataset, type DatasetOptions } from './dataset.js';
export {
  countOrdered,
  countTokens,
  isWorthKeeping,
  isWorthKeepingWithin,
  MIN_GAIN,
  pathsOf,
  type TokenCounts,
} from './pathOrder.js';
export { planQuestions, type QuestionPlan, type ScorerLimits } from './questionPlan.js';
export { evaluate, type EvaluateOptions, type Evaluation } from './evaluate.js';
export { datasetOfRecords, type DatasetRecord } from './dataset.js';
export { Journal, journalPath, type JournalOptions } from './journal.js';
export type { RunIdentity } from './journal.js';
export { mergeShards, type Merged, type MergeRequest } from './merge.js';
export { argmax, meanAndError, measure, type QuestionMetrics, type Scores } from './metrics.js';
export { layBatch, type LaidBatch } from './scoreBatches.js';
export { claimModelName, modelFolder, sanitiseModelName } from './output.js';
export { packTrees, shuffled } from './packing.js';
export { fits } from './packing.js';
export type { BatchCost, Capacity, Pack, Packable } from './packing.js';
export type { Progress } from './evaluate.js';
export { throughputOf } from './results.js';
export type { DeviceUse, Provenance, Results, StartUp, Throughput, WrittenResults } from './resultTypes.js';
export {
  checkResumed,
  scoreQuestions,
  tokenizeDataset,
  type LoadedQuestions,
  type Scored,
  type ScoreOptions,
} from './evaluate.js';
export type { MicroBatch, NonFinite, PathScorer, ScoredRows, Scorer } from './scorer.js';
export { chooseDocs, parseDocs, parseLimit, printDocs, type DocRange, type Selection } from './selection.js';
export { cutWindows } from './pathLengths.js';
export { SHARING_MODES, treeSharing, type Sharing } from './scorer.js';
export { MAX_SHARDS, resultsFolder, shardName, treesOfShard, type Shard } from './shard.js';
export { planWalks, type WalkPlan } from './walk.js';
export { formatTable } from './table.js';
export { fileTaskByName, FILE_TASKS } from './fileTasks.js';
export type { Doc, Question, TaskName } from './question.js';
export type { FileTask } from './fileTasks.js';
export { checkLengths, OVERLONG, truncateOverlong, type Overlong, type PathLimit } from './pathLengths.js';
export {
  QuestionTokenizer,
  TokenizerThreads,
  tokenizeQuestions,
  type TokenizedQuestion,
  type TokenizeOptions,
} from './tokenize.js';
export type { TextTokenizer, TokenizerSource } from './tokenizeChunk.js';
export {
  buildTree,
  measureTree,
  pathLength,
  type Answer,
  type Path,
  type Tree,
  type TreeSharing,
  type TreeSize,
} from './tree.js';
export { Turns, type Turn } from './turns.js';
export { planTrees, type Forest, type TreePlan } from './treePlan.js';
export { groupCalls, groupContexts, twoPhase, type TwoPhaseOptions } from './twoPhase.js';
