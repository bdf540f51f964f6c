/**
 * Drafts of the texts of one replica: who proposes, how many of them a step takes, and what became of them. What a
 * text is does not depend on it. A text that drafts may follow waits for its last token before its next step.
 */
import { type Drafter, type DraftState, type DraftText, NO_DRAFT, usableDraft } from '../draft/drafter.js';
import type { DeviceDrafts, DraftAsk } from './deviceDrafts.js';
import { acceptedNodes, depthOf } from './draftTree.js';
import type { Measures } from './modelStats.js';
import type { Scheduler } from './scheduler.js';
import type { Sequence } from './sequence.js';
import type { Step } from './stepMessage.js';
import type { Task } from './task.js';

/** Who proposes what may follow the texts of a model, and how much of it steps take. */
export interface ModelDrafts {
  /** For texts whose requests say nothing else. Default: nobody. */
  readonly drafter?: Drafter | undefined;
  /** Most drafts of a text in a step; `auto`, the default: as many as pay. */
  readonly tokens?: number | 'auto' | undefined;
}

/** Drafts that a device makes of a text for a step, where nobody says how many. */
const DEVICE_DRAFTS = 5;

interface Entry {
  readonly task: Task;
  /** Absent: the device proposes. */
  readonly state: DraftState | undefined;
  readonly text: DraftText;
  readonly name: string;
}

export class Speculation {
  private readonly scheduler: Scheduler;
  private readonly drafts: ModelDrafts;
  private readonly vocabSize: number;
  private readonly entries = new Map<Sequence, Entry>();
  private readonly measures: Measures;
  /** For texts that no drafter of the host follows. */
  private readonly device: DeviceDrafts | undefined;

  constructor(
    scheduler: Scheduler,
    measures: Measures,
    drafts: ModelDrafts = {},
    vocabSize = Infinity,
    device?: DeviceDrafts,
  ) {
    this.scheduler = scheduler;
    this.device = device;
    this.measures = measures;
    this.drafts = drafts;
    this.vocabSize = vocabSize;
  }

  /** A text is to be continued. */
  begin(task: Task): void {
    const { sequence, request } = task;
    if (request.drafts === false || request.maxNewTokens === 0) return;
    const drafter = request.drafts ?? this.drafts.drafter;
    if (drafter === undefined && this.device === undefined) return;
    const { tokens, promptLength } = sequence;
    const text = { tokens, promptLength, drawAt: (at: number) => sequence.drawAt(at) };
    const state = drafter && this.attempt(task, () => drafter.begin(text));
    if (drafter !== undefined && state === undefined) return;
    sequence.isDrafting = true;
    this.entries.set(sequence, { task, state, text, name: (drafter ?? this.device!).name });
  }

  end(sequence: Sequence): void {
    const entry = this.entries.get(sequence);
    if (entry === undefined) return;
    this.entries.delete(sequence);
    this.attempt(entry.task, () => entry.state?.end?.(entry.text));
  }

  /** Nothing is proposed for a text any more. */
  stop(sequence: Sequence): void {
    sequence.isDrafting = false;
    this.end(sequence);
  }

  /** Before a step is planned: what texts may take behind their last tokens. Settles when that is known. */
  prepare(): Promise<void> | undefined {
    const { tokens: fixed = 'auto' } = this.drafts;
    const asks: DraftAsk[] = [];
    for (const sequence of this.scheduler.running) {
      const entry = this.entries.get(sequence);
      if (entry === undefined || !sequence.isWriting || sequence.pending === 0 || sequence.isLooked) continue;
      const { state } = entry;
      const most = Math.min(
        fixed === 'auto' ? (state === undefined ? DEVICE_DRAFTS : Infinity) : fixed,
        sequence.draftRoom,
      );
      if (most === 0) continue;
      if (state === undefined) {
        sequence.draft = NO_DRAFT;
        asks.push({ sequence, depth: most });
        continue;
      }
      const proposed = this.attempt(entry.task, () => state.propose(entry.text, most));
      if (proposed !== undefined) sequence.draft = usableDraft(proposed, most, this.vocabSize);
    }
    return asks.length === 0 ? undefined : this.askDevice(asks);
  }

  /** Texts may end meanwhile, but none goes on. */
  private async askDevice(asks: readonly DraftAsk[]): Promise<void> {
    for (const [sequence, draft] of await this.device!.round(asks))
      if (this.entries.has(sequence)) sequence.draft = usableDraft(draft, Infinity, this.vocabSize);
  }

  /** A step was read: its sequences have their new tokens. */
  read({ pieces }: Step): void {
    for (const { sequence, to, drafts } of pieces) {
      const entry = this.entries.get(sequence);
      if (entry === undefined || drafts.tokens.length === 0) continue;
      const accepted = acceptedNodes(drafts, sequence.tokens, to).length;
      const atDepths: number[] = [];
      drafts.tokens.forEach((_, node) => {
        const depth = depthOf(drafts, node) - 1;
        atDepths[depth] = (atDepths[depth] ?? 0) + 1;
      });
      this.measures.draft(
        entry.name,
        atDepths,
        atDepths.map((_, depth) => (depth < accepted ? 1 : 0)),
      );
      entry.task.countDrafts(drafts.tokens.length, accepted);
    }
  }

  /** What a drafter does ends its text alone. */
  private attempt<T>(task: Task, work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      task.stopFor(error instanceof Error ? error : new Error(String(error)));
      return undefined;
    }
  }
}
