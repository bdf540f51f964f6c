/**
 * Drafts that a device makes, in rounds between steps. A first call takes what the function `draft` has not computed of
 * each text, and draws; the next ones take what the one before drew, unread. All are sent at once, and awaited once.
 * Its keys lie in the pages of the texts, so that pages which are found again, copied or given back have them too.
 * Whatever goes wrong costs drafts and nothing else.
 */
import { chanceOf } from '../draft/chance.js';
import type { Draft } from '../draft/drafter.js';
import { MAX_DRAFTS } from '../draft/limits.js';
import type { Draw } from '../ir/gumbel.js';
import { type DeviceModel, type DraftFunction, StateLost } from './device.js';
import { type DraftCall, draftMessage, type DraftPart, pagesAt } from './draftCalls.js';
import { PAGE_TOKENS, type PagePool } from './pages.js';
import type { Scheduler } from './scheduler.js';
import type { Sequence } from './sequence.js';

/** A text that is to have up to so many drafts. */
export interface DraftAsk {
  readonly sequence: Sequence;
  readonly depth: number;
}

/** What rounds did so far. */
export interface DraftTotals {
  readonly rounds: number;
  readonly calls: number;
  /** New tokens of all calls, and calls that failed. */
  readonly tokens: number;
  readonly failures: number;
  /** From the first call of each round to the last answer. */
  readonly seconds: number;
}

/** The rows that draw what follows a text. */
interface Chain {
  readonly sequence: Sequence;
  readonly length: number;
  readonly rows: { readonly call: DraftCall; readonly row: number }[];
  /** Tokens that the calls behind the first are fed with; filled in when they are known. */
  readonly fed: number[];
}

/**
 * A text whose calls fail is left out for this many rounds, twice as many the next time; all are where a device ends.
 */
const REST_ROUNDS = 8;
const LOST_ROUNDS = 16;
const MOST_DOUBLED = 8;

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

export class DeviceDrafts {
  readonly name: string;
  private readonly model: Pick<DeviceModel, 'step'>;
  private readonly draft: DraftFunction;
  private readonly pool: PagePool;
  private readonly scheduler: Pick<Scheduler, 'running'>;
  /** Texts whose calls failed: how often, and the round from which on they are tried again. */
  private readonly resting = new WeakMap<Sequence, { readonly failures: number; readonly until: number }>();
  private losses = 0;
  private restUntil = 0;
  private readonly counted = { rounds: 0, calls: 0, tokens: 0, failures: 0, seconds: 0 };

  constructor(
    model: Pick<DeviceModel, 'step'>,
    draft: DraftFunction,
    pool: PagePool,
    scheduler: Pick<Scheduler, 'running'>,
  ) {
    this.name = draft.name;
    this.model = model;
    this.draft = draft;
    this.pool = pool;
    this.scheduler = scheduler;
  }

  get totals(): DraftTotals {
    return this.counted;
  }

  /** Tokens that the function has to compute of a text before it can propose what follows, the last among them. */
  behind(sequence: Sequence): number {
    return sequence.tokens.length - this.draft.ahead - this.computed(sequence);
  }

  /**
   * Asks for drafts of texts whose last tokens are known: chains of at most `depth` tokens. Texts without are left out:
   * those for which there is no room, which must be caught up with first, or whose calls failed. Never rejects.
   */
  async round(asks: readonly DraftAsk[]): Promise<ReadonlyMap<Sequence, Draft>> {
    this.counted.rounds++;
    const began = performance.now();
    const admitted = asks.flatMap((ask) => this.admit(ask) ?? []);
    const calls: DraftCall[] = [];
    this.catchUp(admitted, calls);
    const chains = this.groupsOf(admitted).flatMap((group) => this.draw(group, calls));
    for (const call of calls) {
      const answer = await call.answer;
      if (answer instanceof Error) this.fail(call, answer);
    }
    if (calls.length > 0) this.counted.seconds += (performance.now() - began) / 1000;
    const drafts = new Map<Sequence, Draft>();
    for (const chain of chains) drafts.set(chain.sequence, await this.draftOf(chain));
    for (const [sequence, { tokens }] of drafts) if (tokens.length === 0) drafts.delete(sequence);
    return drafts;
  }

  /** Whether a round leaves the text out, because calls have failed. */
  isResting(sequence: Sequence): boolean {
    const { rounds } = this.counted;
    return rounds < this.restUntil || rounds < (this.resting.get(sequence)?.until ?? 0);
  }

  /** As much of what is asked for as there is room for. Its sequence then has the pages for it. */
  private admit({ sequence, depth }: DraftAsk): DraftAsk | undefined {
    const { ahead, limits, maxLength = Infinity } = this.draft;
    const { length } = sequence.tokens;
    if (this.isResting(sequence)) return undefined;
    if (sequence.number < 0 || !sequence.isWriting || length <= ahead) return undefined;
    // Features are there once a step has computed them.
    if (length - sequence.computed > (ahead === 1 ? 1 : MAX_DRAFTS)) return undefined;
    const most = Math.min(
      ...[depth, MAX_DRAFTS, sequence.draftRoom],
      ...[maxLength + 1 + ahead - length, limits.keys - length],
    );
    if (most < 1) return undefined;
    // Pages are left for the next tokens of all that run.
    const needed = Math.ceil((length + most) / PAGE_TOKENS) - sequence.pages.length;
    if (this.pool.available - needed >= this.scheduler.running.length) sequence.reserve(length + most, this.pool);
    const room = Math.min(most, sequence.pages.length * PAGE_TOKENS - length);
    return room < 1 ? undefined : { sequence, depth: room };
  }

  /** The first positions of a text that the function has computed: not the last one that it can. */
  private computed(sequence: Sequence): number {
    const { pool } = this;
    const { fed, tokens, pages } = sequence;
    if (fed !== undefined) {
      let right = 0;
      while (right < fed.tokens.length && tokens[fed.from + right] === fed.tokens[right]) right++;
      this.mark(sequence, fed.from + right);
    }
    let rows = 0;
    for (const page of pages) {
      rows += pool.drafted[page]!;
      if (pool.drafted[page]! < PAGE_TOKENS) break;
    }
    return Math.min(rows, tokens.length - this.draft.ahead - 1);
  }

  /** The function computes the first `to` positions, with what it computed before. */
  private mark({ pages }: Sequence, to: number): void {
    const { drafted } = this.pool;
    for (let i = 0; i * PAGE_TOKENS < to; i++) {
      const page = pages[i];
      if (page === undefined) return;
      drafted[page] = Math.max(drafted[page]!, Math.min(PAGE_TOKENS, to - i * PAGE_TOKENS));
    }
  }

  /** Whether the next call may have all that is left of a text, and draw what follows. */
  private isReady({ sequence }: DraftAsk): boolean {
    return this.behind(sequence) <= Math.min(MAX_DRAFTS + 1, this.draft.limits.tokens);
  }

  /** Computes long beginnings: a call of them, or as many as it takes until some text is ready. */
  private catchUp(asks: readonly DraftAsk[], calls: DraftCall[]): void {
    const { ahead, limits } = this.draft;
    for (;;) {
      const late = asks.filter((ask) => !this.isReady(ask));
      if (late.length === 0 || (calls.length > 0 && late.length < asks.length)) return;
      const parts: DraftPart[] = [];
      const writing = new Set<number>();
      let [tokens, keys] = [0, 0];
      for (const { sequence } of late) {
        const from = this.computed(sequence);
        const to = Math.min(from + limits.tokens - tokens, sequence.tokens.length - ahead - 1);
        const pages = pagesAt(sequence, from, to + ahead);
        // What another computes meanwhile need not be computed again.
        if (to <= from || keys + to > limits.keys || pages.some((page) => writing.has(page))) continue;
        for (const page of pages) writing.add(page);
        tokens += to - from;
        keys += to;
        parts.push({ sequence, from, tokens: sequence.tokens.slice(from + ahead, to + ahead), draw: 'none' });
      }
      if (parts.length === 0) return;
      calls.push(this.send(parts, true));
      for (const part of parts) this.mark(part.sequence, part.from + part.tokens.length);
    }
  }

  /** Texts that are ready, as many in each group as a call takes. */
  private groupsOf(asks: readonly DraftAsk[]): readonly (readonly DraftAsk[])[] {
    const { ahead, limits } = this.draft;
    const { rows: maxRows = limits.tokens } = limits;
    const groups: DraftAsk[][] = [];
    const writing = new Set<number>();
    let [tokens, keys] = [0, 0];
    for (const ask of asks) {
      const { sequence, depth } = ask;
      const { length } = sequence.tokens;
      const pages = pagesAt(sequence, this.computed(sequence), length);
      if (!this.isReady(ask) || pages.some((page) => writing.has(page))) continue;
      for (const page of pages) writing.add(page);
      const count = this.behind(sequence);
      const listed = length + depth - ahead;
      let group = groups.at(-1);
      const hasRoom = tokens + count <= limits.tokens && keys + listed <= limits.keys;
      if (group === undefined || !hasRoom || group.length >= maxRows) {
        groups.push((group = []));
        [tokens, keys] = [0, 0];
      }
      group.push(ask);
      tokens += count;
      keys += listed;
    }
    return groups;
  }

  /** Sends the calls that draw what follows each text of a group. */
  private draw(group: readonly DraftAsk[], calls: DraftCall[]): readonly Chain[] {
    const { ahead } = this.draft;
    const chains = group.map(({ sequence }): Chain => ({
      ...{ sequence, length: sequence.tokens.length, rows: [], fed: [] },
    }));
    const deepest = Math.max(...group.map(({ depth }) => depth));
    for (let depth = 1; depth <= deepest; depth++) {
      const going = chains.filter((_, i) => group[i]!.depth >= depth);
      const parts = going.map(({ sequence, length, rows }): DraftPart => {
        const from = depth === 1 ? this.computed(sequence) : length - ahead + depth - 2;
        const tokens = depth === 1 ? sequence.tokens.slice(from + ahead) : [-1 - rows.at(-1)!.row];
        return { sequence, from, tokens, draw: sequence.drawAt(length + depth - 1) };
      });
      const call = this.send(parts, depth === deepest);
      calls.push(call);
      going.forEach(({ rows }, row) => rows.push({ call, row }));
    }
    for (const { sequence, length, fed } of chains) {
      this.mark(sequence, length - ahead);
      // What goes on from features is computed again with those of a step.
      sequence.fed = ahead === 0 ? { from: length, tokens: fed } : undefined;
    }
    return chains;
  }

  private send(parts: readonly DraftPart[], isLast: boolean): DraftCall {
    const knownPages = parts.map(({ sequence }) => sequence.knownPages);
    const written = parts.map(({ sequence, from, tokens }) => pagesAt(sequence, from, from + tokens.length));
    const message = draftMessage(parts, isLast);
    this.counted.calls++;
    this.counted.tokens += message.tokens.length;
    const ask = async () => this.model.step(message);
    return { parts, written, knownPages, answer: ask().catch(asError) };
  }

  /** Nobody knows what the call has computed, or whether the device took the pages that it named. */
  private fail({ parts, written, knownPages }: DraftCall, error: Error): void {
    this.counted.failures++;
    if (error instanceof StateLost) {
      this.restUntil = this.counted.rounds + LOST_ROUNDS * 2 ** Math.min(this.losses++, MOST_DOUBLED);
      return;
    }
    parts.forEach(({ sequence, from }, i) => {
      written[i]!.forEach((page, k) => {
        const first = (Math.floor(from / PAGE_TOKENS) + k) * PAGE_TOKENS;
        this.pool.drafted[page] = Math.min(this.pool.drafted[page]!, Math.max(0, from - first));
      });
      sequence.knownPages = Math.min(sequence.knownPages, knownPages[i]!);
      this.rest(sequence);
    });
  }

  private rest(sequence: Sequence): void {
    const { failures = 0 } = this.resting.get(sequence) ?? {};
    const until = this.counted.rounds + REST_ROUNDS * 2 ** Math.min(failures, MOST_DOUBLED);
    this.resting.set(sequence, { failures: failures + 1, until });
  }

  /** What the rows of a chain have drawn, as far as their calls were answered. */
  private async draftOf({ sequence, length, rows, fed }: Chain): Promise<Draft> {
    const tokens: number[] = [];
    const chances: number[] = [];
    for (const { call, row } of rows) {
      const answer = await call.answer;
      if (answer instanceof Error) break;
      const token = answer.nextToken[row] ?? -1;
      if (token < 0) {
        this.rest(sequence);
        break;
      }
      const draw = sequence.drawAt(length + tokens.length);
      const chance = Math.exp(answer.nextTokenLogProb[row] ?? NaN);
      chances.push(chanceOf(atTemperature(chance, draw), token, draw));
      tokens.push(token);
    }
    // The last token that was drawn was fed to nobody.
    fed.push(...tokens.slice(0, rows.length - 1));
    return { tokens, chances };
  }
}

/** About the probability at the temperature of a draw of what has `p` at temperature 1, as if there were one other. */
function atTemperature(p: number, draw: Draw | undefined): number {
  if (draw === undefined) return p;
  const [own, other] = [p ** draw.inverseTemperature, (1 - p) ** draw.inverseTemperature];
  return own / (own + other);
}
