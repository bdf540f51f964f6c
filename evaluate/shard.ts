/**
 * Shards: parts of a run that independent processes score, each with its own folder and journal. The questions and the
 * model alone determine which shard scores what, so the processes need not communicate.
 */
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UserError } from '../errors.js';
import { journalPath } from './journal.js';
import { modelFolder } from './output.js';
import { orderPaths } from './pathOrder.js';
import { type Shard, shardName } from './shardName.js';
import { measureTree, type TreeSize } from './tree.js';
import type { TreePlan } from './treePlan.js';
import { Cutter } from './walk.js';

/** What to do where the results of a merge cannot be written. */
export const MERGE_AGAIN = 'Free some space, or give another --out, and merge again';

const folderName = ({ index, count }: Shard): string => `shard-${index}-of-${count}`;

/** The shard whose folder this is, by its name. */
export function shardOfFolder(path: string): Shard | undefined {
  const match = /^shard-(\d{1,6})-of-(\d{1,6})$/.exec(basename(path));
  if (match === null) return undefined;
  const [index, count] = [Number(match[1]), Number(match[2])];
  return index >= 1 && index <= count ? { index, count } : undefined;
}

/** The folder for the files of a run. Shards may share --out without conflicts. */
export const resultsFolder = (out: string, modelName: string, shard?: Shard): string =>
  shard === undefined ? modelFolder(out, modelName) : join(modelFolder(out, modelName), folderName(shard));

/**
 * Refuses to resume one part of a run as another: it would start from the beginning although a journal holds its
 * answers. Throws UserError.
 */
export function checkResumedShard(
  out: string,
  modelName: string,
  { task, dataset }: { readonly task: string; readonly dataset: string },
  shard: Shard | undefined,
): void {
  const whole = modelFolder(out, modelName);
  const own = resultsFolder(out, modelName, shard);
  const journalIn = (folder: string): string => journalPath(folder, task, dataset);
  if (!existsSync(whole) || existsSync(journalIn(own))) return;
  const old = join(own, `journal_${task}.jsonl`);
  if (existsSync(old)) {
    throw new UserError(
      `${old} was written by an older version, and this version cannot continue its journals`,
      'Run without --resume to score everything again; the old journal is kept',
    );
  }
  const now = shard === undefined ? 'the whole run' : `shard ${shardName(shard)}`;
  const fresh = 'or run without --resume to score everything again';
  if (shard !== undefined && existsSync(journalIn(whole))) {
    throw new UserError(
      `${journalIn(whole)} is the journal of the whole run, but this is ${now}`,
      `Leave out --shard to continue it, ${fresh}`,
    );
  }
  const other = readdirSync(whole)
    .filter((name) => existsSync(journalIn(join(whole, name))))
    .flatMap((name) => shardOfFolder(name) ?? [])
    .find(({ count }) => count !== shard?.count);
  if (other === undefined) return;
  throw new UserError(
    `${whole} holds journals of shards of ${other.count}, but this is ${now}`,
    `Continue with --shard ${shardName(other)} and the others of that run, ${fresh}`,
  );
}

/** Estimated work of one tree, in any unit. It must be the same on every machine, so it ignores tuning. */
export type WorkOf = (tree: TreeSize) => number;

/** Trees that one shard scores together, and their estimated work. */
interface Unit {
  readonly trees: readonly TreePlan[];
  readonly work: number;
}

/** Questions with a long beginning in common are divided among shards if they are more than this part of a share. */
const UNITS_PER_SHARD = 4;

/** Trees that hold choices of one question, in the order of their first ones. */
function questionGroups(trees: readonly TreePlan[]): TreePlan[][] {
  // A tree of several questions holds all their choices, so its first question can stand for all.
  const groups = new Map<number, TreePlan[]>();
  for (const tree of trees) {
    const name = tree.paths[0]?.question ?? -1;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [tree]);
    else group.push(tree);
  }
  return [...groups.values()];
}

/** Joins groups that begin alike, as far as shards stay even. */
function joinAlike(groups: readonly TreePlan[][], count: number, workOf: WorkOf): Unit[] {
  const ofFirst = new Map(groups.map((trees) => [trees[0]!.paths[0]!, trees]));
  const { paths, shared } = orderPaths([...ofFirst.keys()]);
  const ordered = paths.map((path) => {
    const trees = ofFirst.get(path)!;
    const all =
      trees.length === 1
        ? trees[0]!
        : measureTree(
            trees.flatMap((tree) => tree.paths),
            'tree',
          );
    return { trees, size: all };
  });
  const cutter = new Cutter(
    ordered.map(({ size }) => size.tokens),
    shared,
  );
  const runs = cutter.cheapRuns().flatMap((run) => [...cutter.halved(run, cutter.tokens / (count * UNITS_PER_SHARD))]);
  return runs.map(({ from, to }) => ({
    trees: ordered.slice(from, to).flatMap(({ trees }) => trees),
    work: ordered
      .slice(from, to)
      .reduce(
        (sum, { size }, i) => sum + workOf({ ...size, tokens: size.tokens - (i > 0 ? shared[from + i]! : 0) }),
        0,
      ),
  }));
}

/**
 * The trees of one shard, in order. Trees that hold choices of one question stay together; the largest such unit goes
 * first, each to the shard that has the least work so far. `isAlike`: questions have so much in common that those that
 * begin alike are to stay together, too, so that few shards compute a common beginning.
 */
export function treesOfShard(
  trees: readonly TreePlan[],
  { index, count }: Shard,
  workOf: WorkOf,
  isAlike = false,
): TreePlan[] {
  const groups = questionGroups(trees);
  const units = isAlike
    ? joinAlike(groups, count, workOf)
    : groups.map((group): Unit => ({ trees: group, work: group.reduce((sum, tree) => sum + workOf(tree), 0) }));
  const load = new Float64Array(count);
  const own = new Set<TreePlan>();
  // Sorting is stable: units of equal work stay in their order.
  for (const unit of units.sort((a, b) => b.work - a.work)) {
    const least = load.reduce((best, work, i) => (work < load[best]! ? i : best), 0);
    load[least]! += unit.work;
    if (least === index - 1) unit.trees.forEach((tree) => own.add(tree));
  }
  return trees.filter((tree) => own.has(tree));
}
