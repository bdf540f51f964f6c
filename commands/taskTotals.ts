/** What the windows of a run of tasks come to together. */
import { createHash } from 'node:crypto';
import type { Overlong } from '../evaluate/pathLengths.js';
import type { ClosedRange } from '../evaluate/selection.js';
import type { TaskWindow } from '../evaluate/windows.js';
import { draftSums } from './draftFigures.js';
import type { Computed, GenerationTotals, QuestionFacts } from './runReporter.js';
import type { ScoredSet } from './scoreSet.js';
import type { PackedWindow } from './taskModel.js';
import type { GeneratedTexts } from './taskTexts.js';

export class TaskTotals {
  readonly #overlong: Overlong;
  readonly #hashes: string[] = [];
  #docs: readonly ClosedRange[] = [];
  #added: readonly number[] = [];
  #documents = 0;
  #questions = 0;
  #truncated = 0;
  #scored: Omit<Computed, 'modelFlops' | 'devices'> = {
    questions: 0,
    tokens: 0,
    tokenCounts: { alone: 0, grouped: 0, shared: 0 },
    seconds: 0,
  };
  #generated: GenerationTotals | undefined;

  constructor(overlong: Overlong = 'truncate') {
    this.#overlong = overlong;
  }

  /** Documents of windows that are finished. */
  get documents(): number {
    return this.#documents;
  }

  get generated(): GenerationTotals | undefined {
    return this.#generated;
  }

  add({ window, questions, prompts }: PackedWindow, scored: ScoredSet | undefined, texts?: GeneratedTexts): void {
    this.#hashes.push(window.dataset.sha256);
    this.#docs = window.dataset.docs;
    this.#added = questions.loaded.addedTokens;
    this.#documents += window.documents;
    this.#questions += window.dataset.questions.length;
    this.#truncated += questions.truncatedChoices + (prompts?.truncated ?? 0);
    if (scored !== undefined) this.#addScores(scored);
    if (texts !== undefined) this.#addTexts(texts);
  }

  /** Of one window its own hash, of several a hash of theirs. */
  get about(): QuestionFacts {
    const [only = '', ...others] = this.#hashes;
    return {
      added: this.#added,
      overlong: this.#overlong,
      truncated: this.#truncated,
      sha256: others.length === 0 ? only : createHash('sha256').update(this.#hashes.join('\n')).digest('hex'),
      docs: this.#hashes.length === 1 ? this.#docs : [{ first: 0, end: this.#documents }],
      questions: this.#questions,
    };
  }

  computed(devices: Pick<Computed, 'modelFlops' | 'devices'>): Computed {
    return { ...this.#scored, ...devices };
  }

  #addScores({ questionsScored, tokensComputed, tokenCounts, scoreSeconds }: ScoredSet): void {
    const { questions, tokens, tokenCounts: before, seconds } = this.#scored;
    this.#scored = {
      questions: questions + questionsScored,
      tokens: tokens + tokensComputed,
      tokenCounts: {
        alone: before.alone + tokenCounts.alone,
        grouped: before.grouped + tokenCounts.grouped,
        shared: before.shared + tokenCounts.shared,
      },
      seconds: seconds + scoreSeconds,
    };
  }

  #addTexts({ texts, counts, drafts, seconds }: GeneratedTexts): void {
    const before = this.#generated;
    const of = draftSums(drafts);
    this.#generated = {
      calls: (before?.calls ?? 0) + counts.calls,
      computedTokens: (before?.computedTokens ?? 0) + counts.computedTokens,
      foundTokens: (before?.foundTokens ?? 0) + counts.foundTokens,
      preemptions: (before?.preemptions ?? 0) + counts.preemptions,
      evictions: (before?.evictions ?? 0) + counts.evictions,
      peakPages: Math.max(before?.peakPages ?? 0, counts.peakPages),
      pages: counts.pages,
      writtenTokens: (before?.writtenTokens ?? 0) + of.writtenTokens,
      writtenParts: (before?.writtenParts ?? 0) + of.writtenParts,
      draftedTokens: (before?.draftedTokens ?? 0) + of.draftedTokens,
      acceptedTokens: (before?.acceptedTokens ?? 0) + of.acceptedTokens,
      texts: (before?.texts ?? 0) + [...texts.values()].flat(2).length,
      seconds: (before?.seconds ?? 0) + seconds,
    };
  }
}

/** Words about a window. */
export const isEmpty = ({ dataset }: TaskWindow): boolean => dataset.questions.length === 0;
