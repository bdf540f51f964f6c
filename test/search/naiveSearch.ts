/**
 * What a search is to give, written as plainly as can be: one problem, one path, one ask at a time; everything is asked
 * for again where it is needed; no speculation. Of the default semantics: traces of search-and-learn check the other.
 */
import { createHash } from 'node:crypto';
import { ballotsOf, chosen, isDecided } from '../../search/answers/votes.js';
import type { SearchOptions } from '../../search/options.js';
import { extend, type Path, type Problem, rootOf, type Step, stepsOf } from '../../search/path.js';
import { PathFailed, type PathJudge, type StepWriter } from '../../search/ports.js';
import type { Candidate, Fate, ProblemResult, TreeStep } from '../../search/result.js';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
type Entry = Mutable<TreeStep>;

interface Beam {
  path: Path;
  /** Its last step in the tree; undefined before the first. */
  entry: Entry | undefined;
  subtree: number | undefined;
  /** The number of its draws in this iteration. */
  number: number;
  state: 'open' | 'completed' | 'unfinished' | 'failed';
  ahead: Step[];
  scores: readonly number[];
  aggregate: number;
  error: string | undefined;
  /** What was to be extended. */
  from: Beam | undefined;
}

const never = new AbortController().signal;

function seedOf(seed: number, problem: string, iteration: number, number: number): number {
  const hex = createHash('sha256').update(`${seed}\n${iteration}\n${number}\n${problem}`).digest('hex');
  return Number(BigInt(`0x${hex.slice(0, 14)}`) >> 3n);
}

function aggregateOf(scores: readonly number[], how: SearchOptions['aggregate'] = 'last'): number {
  if (scores.length === 0) return 0;
  if (how === 'last') return scores[scores.length - 1]!;
  if (how === 'min') return Math.min(...scores);
  let product = 1;
  for (const score of scores) product *= score;
  return product;
}

/** The best by aggregate; of equal ones the first. */
function takeBest(beams: Beam[]): Beam {
  let best = 0;
  for (let i = 1; i < beams.length; i++) if (beams[i]!.aggregate > beams[best]!.aggregate) best = i;
  return beams.splice(best, 1)[0]!;
}

export async function naiveSearch(
  problem: Problem,
  writer: StepWriter,
  judge: PathJudge | undefined,
  options: SearchOptions,
): Promise<Omit<ProblemResult, 'notes'>> {
  const { method, n = 16, width = 4, iterations = 40, temperature = 0.8, seed = 0, every = 1, lookahead = 0 } = options;
  const isTree = method === 'beam' || method === 'dvts' || method === 'rebase';
  const root = rootOf(problem);
  const tree: Entry[] = [];
  const completed: Beam[] = [];
  const unfinished: Beam[] = [];
  const subtrees = new Map<number, Beam[]>();

  async function attempt(beam: Beam, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof PathFailed)) throw error;
      beam.state = 'failed';
      beam.error = error.message;
      beam.scores = [];
    }
  }

  const ask = (beam: Beam, iteration: number, isDrawn: boolean): Promise<Step> =>
    writer.write({
      path: beam.path,
      ahead: beam.ahead.slice(),
      iteration,
      candidate: beam.number,
      seed: isDrawn && temperature > 0 ? seedOf(seed, problem.problem, iteration, beam.number) : undefined,
      toEnd: !isTree,
      isSpeculative: false,
      signal: never,
    });

  async function drawStep(beam: Beam, iteration: number): Promise<void> {
    const step = await ask(beam, iteration, true);
    beam.path = extend(beam.path, step);
    const parent = beam.entry === undefined ? null : tree.indexOf(beam.entry);
    beam.entry = {
      parent,
      iteration,
      ...(beam.subtree === undefined ? {} : { subtree: beam.subtree }),
      text: step.text,
      tokens: step.tokens.length,
      end: step.end,
      fate: 'survives',
    };
    tree.push(beam.entry);
    if (step.end === 'eos' || step.end === 'other-eos') beam.state = 'completed';
    else if (step.end !== 'step') beam.state = 'unfinished';
  }

  function nothingDrawn(beam: Beam, iteration: number): void {
    beam.entry = {
      parent: beam.entry === undefined ? null : tree.indexOf(beam.entry),
      iteration,
      ...(beam.subtree === undefined ? {} : { subtree: beam.subtree }),
      text: '',
      tokens: 0,
      end: 'context',
      fate: 'failed',
    };
    tree.push(beam.entry);
  }

  /** Draws and scores the children, whose entries are then in the tree. */
  async function round(beams: Beam[], iteration: number, steps: number): Promise<void> {
    for (let i = 0; i < steps; i++)
      for (const beam of beams)
        if (beam.state === 'open') {
          await attempt(beam, () => drawStep(beam, iteration + i));
          if (i === 0 && beam.path === (beam.from?.path ?? root)) nothingDrawn(beam, iteration);
        }
    for (const beam of beams) {
      await attempt(beam, async () => {
        while (beam.state === 'open' && beam.ahead.length < lookahead && (beam.ahead.at(-1)?.end ?? 'step') === 'step')
          beam.ahead.push(await ask(beam, iteration + steps - 1, false));
      });
      if (beam.state === 'failed' || judge === undefined || method === 'majority') continue;
      await attempt(beam, async () => {
        beam.scores = await judge.score(beam.path, beam.ahead, never);
        for (const [i, score] of beam.scores.entries())
          if (!Number.isFinite(score)) throw new PathFailed(`the score of step ${i + 1} is ${score}`);
      });
    }
    for (const beam of beams) {
      beam.aggregate = aggregateOf(beam.scores, options.aggregate);
      const entry = beam.entry!;
      if (beam.error !== undefined) entry.error = beam.error;
      if (beam.ahead.length > 0) entry.ahead = beam.ahead.map(({ text }) => text).join('');
      if (beam.scores.length > 0) {
        entry.scores = beam.scores.length;
        entry.last = beam.scores.at(-1)!;
        entry.aggregate = beam.aggregate;
      }
    }
  }

  const child = (from: Beam | undefined, number: number, subtree?: number): Beam => ({
    path: from?.path ?? root,
    entry: from?.entry,
    subtree,
    number,
    state: 'open',
    ahead: [],
    scores: [],
    aggregate: 0,
    error: undefined,
    from,
  });

  const mark = (beam: Beam, fate: Fate): void => void (beam.entry!.fate = beam.state === 'failed' ? 'failed' : fate);

  /** Children of survivors; fates of all. */
  function chooseAmongAll(beams: Beam[]): Beam[] {
    const texts = new Set<string>();
    const open: Beam[] = [];
    for (const beam of beams) {
      mark(beam, beam.state === 'open' ? 'pruned' : (beam.state as Fate));
      if (beam.state === 'completed') completed.push(beam);
      if (beam.state === 'unfinished') unfinished.push(beam);
      if (beam.state !== 'open') continue;
      if (options.filterDuplicates === true && texts.has(beam.path.text)) mark(beam, 'duplicate');
      else open.push(beam);
      texts.add(beam.path.text);
    }
    const room = n - completed.length;
    const children: Beam[] = [];
    if (method === 'beam') {
      const left = open.slice();
      const chosenOnes = new Set<Beam>();
      while (left.length > 0 && chosenOnes.size < Math.ceil(room / width)) chosenOnes.add(takeBest(left));
      const survivors = open.filter((beam) => chosenOnes.has(beam));
      for (const beam of survivors) mark(beam, 'survives');
      for (let turn = 0; survivors.length > 0 && children.length < room; turn++)
        for (const beam of survivors)
          if (children.length < room) children.push(child(beam, beams.indexOf(beam) * n + turn));
      return children;
    }
    const counts = new Map<Beam, number>();
    const ranked: Beam[] = [];
    for (const left = open.slice(); left.length > 0;) ranked.push(takeBest(left));
    const weight = (beam: Beam): number =>
      Math.exp((beam.aggregate - ranked[0]!.aggregate) / (options.rebaseTemperature ?? 0.2));
    let budget = room;
    for (let i = 0; i < ranked.length; i++) {
      let sum = 0;
      for (let j = ranked.length - 1; j >= i; j--) sum += weight(ranked[j]!);
      const count = sum === 0 ? 0 : Math.min(budget, Math.round((budget * weight(ranked[i]!)) / sum));
      counts.set(ranked[i]!, count);
      budget -= count;
    }
    for (const beam of open)
      for (let i = 0; i < counts.get(beam)!; i++) {
        mark(beam, 'survives');
        children.push(child(beam, beams.indexOf(beam) * n + i));
      }
    return children;
  }

  function chooseInSubtrees(beams: Beam[]): Beam[] {
    const children: Beam[] = [];
    for (let subtree = 0; subtree < n / width; subtree++) {
      const own = beams.filter((beam) => beam.subtree === subtree);
      if (own.length === 0) continue;
      subtrees.set(subtree, own);
      for (const beam of own) mark(beam, 'pruned');
      const whole = own.filter(({ state }) => state === 'open' || state === 'completed');
      const rest = own.filter(({ state }) => state === 'unfinished');
      const among = whole.length > 0 ? whole : rest;
      if (among.length === 0) continue;
      const best = takeBest(among);
      mark(best, best.state === 'open' ? 'survives' : (best.state as Fate));
      if (best.state !== 'open') continue;
      for (let i = 0; i < width; i++) children.push(child(best, beams.indexOf(best) * n + i, subtree));
    }
    return children;
  }

  let beams = Array.from({ length: n }, (_, i) =>
    child(undefined, i, method === 'dvts' ? Math.floor(i / width) : undefined),
  );
  if (!isTree) return sampled();
  let last: Beam[] = [];
  for (let iteration = 0; iteration < iterations && beams.length > 0; iteration += every) {
    await round(beams, iteration, Math.min(every, iterations - iteration));
    last = beams;
    beams = method === 'dvts' ? chooseInSubtrees(last) : chooseAmongAll(last);
    if (iteration + every >= iterations || beams.length === 0)
      for (const beam of last)
        if (beam.state === 'open' && beam.entry!.fate !== 'duplicate')
          if (method !== 'dvts' || beam.entry!.fate === 'survives') beam.entry!.fate = 'unfinished';
  }
  return finished(method === 'dvts' ? answersOfSubtrees() : answersOfAll());

  function answersOfAll(): Beam[] {
    if (options.sortCompleted === true) completed.sort((a, b) => b.aggregate - a.aggregate);
    if (completed.length > 0) return completed;
    const before = unfinished.filter((beam) => !last.includes(beam));
    const left = last.filter(({ entry }) => entry!.fate === 'unfinished');
    const cut = [...before, ...left];
    return cut.length > 0 ? cut : [...new Set(last.flatMap(({ from }) => from ?? []))];
  }

  function answersOfSubtrees(): Beam[] {
    const texts: Beam[] = [];
    for (let subtree = 0; subtree < n / width; subtree++) {
      const own = subtrees.get(subtree) ?? [];
      const usable = own.filter(({ state }) => state !== 'failed');
      texts.push(...(usable.length > 0 ? usable : own[0]?.from === undefined ? [] : [own[0].from]));
    }
    const isDone = ({ state }: Beam): boolean => state === 'completed';
    return [...texts.filter(isDone), ...texts.filter((beam) => !isDone(beam))];
  }

  async function sampled(): Promise<Omit<ProblemResult, 'notes'>> {
    const vote = method === 'best-of-n' ? 'naive' : method === 'weighted' ? 'weighted' : 'majority';
    const usable: Beam[] = [];
    for (const [i, beam] of beams.entries()) {
      await round([beam], 0, 1);
      mark(beam, beam.state as Fate);
      if (beam.state !== 'failed') usable.push(beam);
      const left = n - i - 1;
      if (options.earlyStop === true && isDecided(vote, ballotsOf(usable.map(candidate), false), left, 1, false)) break;
    }
    return finished(usable, (candidates) => chosen(vote, ballotsOf(candidates, false), false));
  }

  function candidate({ path, entry, state, scores, aggregate }: Beam): Candidate {
    const tokens = stepsOf(path).reduce((sum, step) => sum + step.tokens.length, 0);
    const isCompleted = state === 'completed';
    return { text: path.text, step: tree.indexOf(entry!), isCompleted, scores, aggregate, tokens };
  }

  function finished(
    answers: readonly Beam[],
    pick = (candidates: readonly Candidate[]): number | null => chosen('naive', ballotsOf(candidates, false), false),
  ): Omit<ProblemResult, 'notes'> {
    const candidates = answers.map(candidate);
    const drawn = tree.filter(({ tokens }) => tokens > 0);
    return {
      tree,
      candidates,
      picked: pick(candidates),
      drawnSteps: drawn.length,
      drawnTokens: drawn.reduce((sum, { tokens }) => sum + tokens, 0),
    };
  }
}
