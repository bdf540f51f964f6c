/**
 * Drafts of the texts of one replica: who proposes, how many of them a step takes, and what became of them. What a
 * text is does not depend on it. Where as many drafts are taken as pay, a replica plans steps ahead while none do, and
 * drafters watch what comes. A step with drafts waits for the last tokens of all its texts, since texts that take turns
 * would each have steps of their own.
 */
import { Acceptance, TextAcceptance } from '../draft/acceptance.js';
import type { Survivals } from '../draft/allocate.js';
import { type Draft, type Drafter, type DraftState, type DraftText, NO_DRAFT, usableDraft } from '../draft/drafter.js';
import { MAX_DRAFTS } from '../draft/limits.js';
import type { StepLimits } from './device.js';
import type { DeviceDrafts } from './deviceDrafts.js';
import { DeviceRounds } from './deviceRounds.js';
import { DraftPolicy, type EndedStep, type NextStep } from './draftPolicy.js';
import { acceptedNodes, depthOf, type DraftTree } from './draftTree.js';
import { DraftWatch, prunedDraft } from './draftWatch.js';
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

/** Of an engine that is not told: what requests bring is taken whole. */
const WHAT_REQUESTS_BRING: ModelDrafts = { tokens: MAX_DRAFTS };

export interface SpeculationOptions {
  readonly limits: StepLimits;
  readonly measures: Measures;
  readonly drafts?: ModelDrafts | undefined;
  readonly vocabSize?: number | undefined;
  /** Proposes for texts that no drafter of the host follows. */
  readonly device?: DeviceDrafts | undefined;
}

/** When a step was planned, and what it took. */
export type StepTiming = Pick<EndedStep, 'seconds' | 'follows'>;

interface Entry {
  readonly task: Task;
  /** Absent: the device proposes. */
  readonly state: DraftState | undefined;
  readonly text: DraftText;
  readonly name: string;
  readonly watch: DraftWatch;
}

/** A text that a step may have drafts of. */
interface Offer {
  readonly sequence: Sequence;
  readonly entry: Entry;
  draft: Draft;
  survivals: Survivals;
}

/** What was done before a step. */
interface Prepared {
  readonly isLate: boolean;
  readonly draftSeconds: number;
  readonly readsPrompts: boolean;
}

export class Speculation {
  private readonly scheduler: Scheduler;
  private readonly measures: Measures;
  private readonly limits: StepLimits;
  private readonly vocabSize: number;
  private readonly drafter: Drafter | undefined;
  private readonly device: DeviceRounds | undefined;
  /** Most drafts of a text in a step, and whether fewer are taken where they do not pay. */
  private readonly mostDrafts: number;
  private readonly isAuto: boolean;
  private readonly policy: DraftPolicy;
  private readonly entries = new Map<Sequence, Entry>();
  private readonly acceptances = new Map<string, Acceptance>();
  /** Whether the step that was planned last has drafts, so that the next one waits for it. */
  private isDrafting = false;
  /** Whether the next step waits, or the one before it had drafts, so that the device has nothing to do meanwhile. */
  private isHeld = false;
  /** Seconds of the round of drafts for the next step. */
  private draftSeconds = 0;
  private readsPrompts = false;
  private readonly prepared = new WeakMap<Step, Prepared>();

  constructor(scheduler: Scheduler, { limits, measures, drafts, vocabSize = Infinity, device }: SpeculationOptions) {
    const { drafter, tokens = 'auto' } = drafts ?? WHAT_REQUESTS_BRING;
    this.scheduler = scheduler;
    this.measures = measures;
    this.limits = limits;
    this.vocabSize = vocabSize;
    this.drafter = drafter;
    this.isAuto = tokens === 'auto';
    this.mostDrafts = tokens === 'auto' ? MAX_DRAFTS : tokens;
    this.policy = new DraftPolicy(limits, device !== undefined);
    this.device = device && new DeviceRounds(device, this.policy);
  }

  /** A text is to be continued. */
  begin(task: Task): void {
    const { sequence, request } = task;
    if (request.drafts === false || request.maxNewTokens === 0) return;
    const drafter = request.drafts ?? this.drafter;
    if (drafter === undefined && this.device === undefined) return;
    const { tokens, promptLength } = sequence;
    const text = { tokens, promptLength, drawAt: (at: number) => sequence.drawAt(at) };
    const state = drafter && this.attempt(task, () => drafter.begin(text));
    if (drafter !== undefined && state === undefined) return;
    sequence.isDrafting = !this.isAuto || this.isDrafting;
    const { name } = drafter ?? this.device!;
    const watch = new DraftWatch(new TextAcceptance(this.acceptanceOf(name)));
    this.entries.set(sequence, { task, state, text, name, watch });
  }

  end(sequence: Sequence): void {
    const entry = this.entries.get(sequence);
    if (entry === undefined) return;
    this.entries.delete(sequence);
    try {
      entry.state?.end?.(entry.text);
    } catch {
      // The text has all its tokens: it is too late for a drafter to end it.
    }
  }

  /** Nothing is proposed for a text any more. */
  stop(sequence: Sequence): void {
    sequence.isDrafting = false;
    this.end(sequence);
  }

  /** Whether a step can be planned before those on their way are read. */
  mayLookAhead(): boolean {
    if (this.entries.size === 0 || !this.policy.times.looksAhead) return true;
    // Steps of texts that take turns would follow each other ahead for ever, and none would have drafts.
    if (this.isDrafting || !this.isAuto) return false;
    const { offers, step } = this.offers();
    const usual = offers.map(({ entry, sequence }) => usualOf(entry, sequence, sequence.unread));
    this.isHeld =
      this.device === undefined
        ? this.policy.isWorthWaiting(usual, step)
        : this.device.isWorthWaiting(usual, offers.map(isOfDevice), step);
    return !this.isHeld;
  }

  /**
   * Before a step is planned: what texts may take behind their last tokens. `isAhead`: steps that will say what those
   * are are on their way. Settles when it is known.
   */
  prepare(isAhead: boolean): Promise<void> | undefined {
    this.isHeld ||= this.isDrafting && this.policy.times.looksAhead;
    this.isDrafting = false;
    this.draftSeconds = 0;
    this.readsPrompts = false;
    if (this.entries.size === 0) return undefined;
    for (const sequence of this.entries.keys())
      if (!sequence.isLooked && !sequence.isThinking) sequence.draft = NO_DRAFT;
    const made = isAhead ? undefined : this.draft();
    if (made === undefined) return this.mark();
    return made.then(() => this.mark());
  }

  private mark(): undefined {
    if (this.isAuto) for (const sequence of this.entries.keys()) sequence.isDrafting = this.isDrafting;
  }

  private draft(): Promise<void> | undefined {
    const { offers, step, isLooked } = this.offers();
    this.isDrafting = isLooked;
    if (offers.length === 0) return undefined;
    for (const offer of offers) {
      const { entry, sequence } = offer;
      if (entry.state === undefined) continue;
      offer.draft = this.propose(entry, sequence);
      offer.survivals = entry.watch.survivals(offer.draft);
    }
    const onDevice = offers.filter(isOfDevice);
    if (onDevice.length === 0) return this.choose(offers, step);
    const depths = this.isAuto ? this.depthsOf(offers, step) : undefined;
    const fixed = Math.min(this.mostDrafts, MAX_DRAFTS);
    const asks = onDevice.flatMap(({ sequence }) => {
      const depth = Math.min(
        depths === undefined && !this.isAuto ? fixed : (depths?.get(sequence) ?? 0),
        sequence.draftRoom,
      );
      return depth > 0 ? [{ sequence, depth }] : [];
    });
    if (asks.length === 0) return this.choose(offers, step);
    const round = this.device!.round(asks);
    return round.then(({ drafts, seconds, readsPrompts }) => {
      this.draftSeconds = seconds;
      this.readsPrompts = readsPrompts;
      // Texts may end meanwhile, but none goes on.
      for (const offer of offers) {
        const { sequence, entry } = offer;
        const draft = drafts.get(sequence);
        if (draft === undefined || !this.entries.has(sequence)) continue;
        offer.draft = usableDraft(draft, Infinity, this.vocabSize);
        entry.watch.begin(offer.draft, sequence.tokens.length);
        offer.survivals = entry.watch.survivals(offer.draft);
      }
      this.choose(offers, step);
    });
  }

  /** How deep the device is to draft. */
  private depthsOf(offers: readonly Offer[], step: NextStep): ReadonlyMap<Sequence, number> {
    const usual = offers.map((offer) =>
      isOfDevice(offer) ? usualOf(offer.entry, offer.sequence, 0) : offer.survivals,
    );
    const depths = this.device!.depths(usual, offers.map(isOfDevice), step);
    return new Map(offers.map(({ sequence }, i) => [sequence, depths[i]!]));
  }

  /** What the step takes of what was proposed. */
  private choose(offers: readonly Offer[], step: NextStep): undefined {
    if (!this.isAuto) {
      this.isDrafting = true;
      for (const { sequence, draft } of offers) sequence.draft = draft;
      return;
    }
    const chosen = this.policy.choose(survivalsOf(offers), step);
    if (chosen === undefined) return;
    this.isDrafting = true;
    offers.forEach(({ sequence, draft }, i) => {
      if (chosen.taken[i]!.length > 0) sequence.draft = prunedDraft(draft, chosen.taken[i]!);
    });
  }

  /** What a step would be that comes next, and the texts that drafts may follow in it. */
  private offers(): { readonly offers: Offer[]; readonly step: NextStep; readonly isLooked: boolean } {
    const { tokens, rows = tokens, besideTokens = Infinity, takesPromptsApart = false } = this.limits;
    const offers: Offer[] = [];
    let [texts, textTokens, keys, pending, isLooked] = [0, 0, 0, this.scheduler.waiting.pending, false];
    for (const sequence of this.scheduler.running) {
      if (!sequence.isWriting) pending += sequence.pending;
      if (!sequence.isWriting || sequence.pending === 0) continue;
      texts++;
      textTokens += sequence.pending;
      keys += sequence.tokens.length;
      // What its guide has looked through is taken as it is, also where nothing is left.
      if (sequence.isLooked) {
        textTokens += sequence.draft.tokens.length;
        isLooked ||= sequence.draft.tokens.length > 0;
        continue;
      }
      const entry = this.entries.get(sequence);
      // While a guide works out the next mask, a text can compute older tokens but takes no drafts.
      if (entry !== undefined && !sequence.isThinking) offers.push({ sequence, entry, draft: NO_DRAFT, survivals: [] });
    }
    const room = Math.max(0, Math.min(besideTokens, tokens) - textTokens);
    const promptTokens = takesPromptsApart ? 0 : Math.min(pending, room);
    const most = Math.min(tokens - promptTokens - textTokens, rows - texts);
    const hasPrompts = promptTokens > 0;
    return { offers, step: { texts, keys, tokens: textTokens + promptTokens, hasPrompts, most }, isLooked };
  }

  /** What may follow the known tokens of a text. */
  private propose(entry: Entry, sequence: Sequence): Draft {
    const { task, state, text, watch } = entry;
    const most = Math.min(this.mostDrafts, sequence.draftRoom);
    const proposed =
      most === 0 ? undefined : this.attempt(task, () => usableDraft(state!.propose(text, most), most, this.vocabSize));
    watch.begin(proposed ?? NO_DRAFT, sequence.tokens.length);
    return proposed ?? NO_DRAFT;
  }

  /** A step that was prepared is on its way. */
  begun(step: Step): void {
    const { isHeld: isLate, draftSeconds, readsPrompts } = this;
    this.prepared.set(step, { isLate, draftSeconds, readsPrompts });
    this.isHeld = false;
    this.draftSeconds = 0;
  }

  /** A step was read: its sequences have their new tokens. */
  read(step: Step, { seconds, follows }: StepTiming): void {
    const { pieces, message } = step;
    let [texts, keys, promptTokens, drafted, accepted] = [0, 0, 0, 0, 0];
    for (const { sequence, from, to, drafts } of pieces) {
      keys += to;
      if (from < sequence.promptLength) promptTokens += to - from;
      else texts++;
      drafted += drafts.tokens.length;
      const entry = this.entries.get(sequence);
      if (entry === undefined) continue;
      if (drafts.tokens.length > 0) accepted += this.count(entry, sequence, drafts, to);
      entry.watch.advance(sequence.tokens);
      // A drafter that waits for its turn watches.
      const isWaiting = this.isAuto && this.policy.times.looksAhead && !this.isDrafting;
      if (isWaiting && entry.state !== undefined && !entry.watch.isOpen)
        sequence.whileKnown(() => this.propose(entry, sequence));
    }
    const { isLate = false, draftSeconds = 0, readsPrompts = false } = this.prepared.get(step) ?? {};
    this.policy.end({
      ...{ texts, keys, tokens: message.tokens.length, hasPrompts: promptTokens > 0 },
      ...{ drafted, accepted, isLate, draftSeconds, readsPrompts, seconds, follows },
    });
  }

  /** Counts the drafts of a text. Returns how many of them it has taken. */
  private count({ task, name }: Entry, sequence: Sequence, drafts: DraftTree, to: number): number {
    const accepted = acceptedNodes(drafts, sequence.tokens, to).length;
    const atDepths: number[] = [];
    drafts.tokens.forEach((_, node) => {
      const depth = depthOf(drafts, node) - 1;
      atDepths[depth] = (atDepths[depth] ?? 0) + 1;
    });
    this.measures.draft(
      name,
      atDepths,
      atDepths.map((_, depth) => (depth < accepted ? 1 : 0)),
    );
    task.countDrafts(drafts.tokens.length, accepted);
    return accepted;
  }

  private acceptanceOf(name: string): Acceptance {
    const known = this.acceptances.get(name) ?? new Acceptance();
    this.acceptances.set(name, known);
    return known;
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

const survivalsOf = (offers: readonly Offer[]): readonly Survivals[] => offers.map(({ survivals }) => survivals);

const isOfDevice = ({ entry }: Offer): boolean => entry.state === undefined;

/** What a step is expected to accept of a text that comes when `unread` tokens more are known. */
const usualOf = ({ state, watch }: Entry, { draftRoom }: Sequence, unread: number): Survivals =>
  state === undefined ? watch.acceptance.chain().slice(0, unread > 0 ? MAX_DRAFTS : draftRoom) : watch.foreseen(unread);
