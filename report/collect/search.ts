/** The section of searches: of each task that was searched its figures by N, and in blocks the tree of each problem. */
import { settingsOfSearch, type TaskFiles } from '../../evaluate/compare/findRuns.js';
import { type Answered, lineOf } from '../../evaluate/compare/readSamples.js';
import { readResult } from '../../search/readResult.js';
import { isRecord, parsePythonJson } from '../../system/json.js';
import { counted } from '../../system/text.js';
import {
  type SearchCurve,
  type SearchDocument,
  type SearchedProblem,
  type SearchedTask,
  type ShownTree,
  treesBlock,
} from '../document/search.js';
import type { Block } from '../document/sections.js';
import { binaryMetrics, type LoadedRun } from './loadRuns.js';
import { shownTree } from './searchTree.js';

/** A block of trees ends with whichever is reached first. */
const BLOCK_PROBLEMS = 16;
const BLOCK_CHARACTERS = 1 << 20;
/** Characters of all trees of a page: later problems have none. */
const MAX_CHARACTERS = 1 << 27;
const [MAX_CURVES, MAX_POINTS, MAX_ASKED] = [12, 64, 60];

const CURVE = /^([\w -]{1,40})@(\d{1,7}),(.{1,100})$/;

/** Figures such as `naive@4,none`, by their number. */
export function curvesOf({ figures }: Pick<TaskFiles, 'figures'>): readonly SearchCurve[] {
  const curves = new Map<string, SearchCurve['points'][number][]>();
  for (const [key, value] of Object.entries(figures)) {
    const [, name, n, filter] = CURVE.exec(key) ?? [];
    if (name === undefined || typeof value !== 'number' || !Number.isFinite(value)) continue;
    const title = filter === 'none' ? name : `${name} (${filter})`;
    const points = curves.get(title) ?? [];
    if (points.length >= MAX_POINTS || (points.length === 0 && curves.size >= MAX_CURVES)) continue;
    const error = figures[`${name}@${n}_stderr,${filter}`];
    points.push({ n: Number(n), value, error: typeof error === 'number' && Number.isFinite(error) ? error : null });
    curves.set(title, points);
  }
  return [...curves].map(([name, points]) => ({ name, points: points.sort((a, b) => a.n - b.n) }));
}

const askedOf = ({ files: { content } }: LoadedRun): readonly (readonly [string, string])[] =>
  Object.entries(settingsOfSearch(content))
    .slice(0, MAX_ASKED)
    .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]);

/** A problem whose tree is on the page. */
interface Placed {
  readonly answered: Answered;
  readonly path: string;
}

export class Searches {
  readonly document: SearchDocument;
  readonly notes: readonly string[];
  readonly #blocks: (readonly Placed[])[] = [];

  constructor(runs: readonly LoadedRun[]) {
    const notes: string[] = [];
    let room = MAX_CHARACTERS;
    let left = 0;
    const tasks: SearchedTask[] = [];
    for (const run of runs)
      for (const [task, loaded] of run.tasks) {
        const { searches, unread, set } = loaded;
        if (unread > 0)
          notes.push(`${set.path}: ${counted(unread, 'search', 'searches')} cannot be read, and is not shown`);
        if (searches.size === 0) continue;
        const [verdict] = binaryMetrics(set);
        let block: Placed[] = [];
        let size = 0;
        const problems = [...set.questions.values()].map((answered): SearchedProblem => {
          const found = searches.get(answered.docId);
          const item = verdict === undefined ? undefined : answered.items[verdict.place];
          const about = {
            docId: answered.docId,
            isRight: item === 1 ? true : item === 0 ? false : null,
            ...{ text: found?.text ?? '', steps: found?.steps ?? 0, candidates: found?.candidates ?? 0 },
          };
          if (found === undefined) return { ...about, block: -1, place: 0 };
          if (found.characters > room) {
            left++;
            return { ...about, block: -1, place: 0 };
          }
          room -= found.characters;
          if (block.length === 0 || block.length >= BLOCK_PROBLEMS || size + found.characters > BLOCK_CHARACTERS) {
            this.#blocks.push((block = []));
            size = 0;
          }
          size += found.characters;
          block.push({ answered, path: set.path });
          return { ...about, block: this.#blocks.length - 1, place: block.length - 1 };
        });
        tasks.push({ run: run.name, task, asked: askedOf(run), curves: curvesOf(loaded.files), problems });
      }
    if (left > 0) notes.push(`${counted(left, 'tree')} of searches had no room on this page`);
    this.document = { tasks };
    this.notes = notes;
  }

  /** Each block is read when it is asked for. */
  *blocks(): Generator<Block> {
    for (const [block, members] of this.#blocks.entries())
      yield { name: treesBlock(block), content: members.map((each) => readTree(each)) };
  }
}

function readTree({ answered, path }: Placed): ShownTree {
  const sample = parsePythonJson(lineOf(path, answered).toString('utf8'), path, 'Write it again');
  const result = isRecord(sample) ? readResult(sample['search']) : undefined;
  if (!isRecord(sample) || result === undefined) throw new Error(`${path} has changed while it was read`);
  return shownTree(sample, result);
}
