/**
 * The memory of a device that models keep keys and values in: one budget in bytes, of which each model has pieces. Who
 * gets how many is decided by splitMemory, from what the models' loops report; a fixed split leaves it as it is.
 */
import { UserError } from '../errors.js';
import { bytes as bytesText } from '../system/text.js';
import { type ModelMemory, SPLIT_POLICY, splitMemory, type SplitPolicy } from './memorySplit.js';
import { PAGE_TOKENS } from './pages.js';
import type { StepCost } from './stepTimes.js';

/** What a model's loop knows of its pages. Counts of what happened grow from its beginning on. */
export interface MemoryUse {
  /** Pages that there is memory for: those held, those kept for nobody in particular, and blank ones. */
  readonly pages: number;
  readonly held: number;
  readonly idle: number;
  /** Pages that waiting sequences would take if they all began, as many as may run at a time. */
  readonly wanted: number;
  /** Whether the last step left sequences out for want of pages. */
  readonly isShort: boolean;
  /** Steps so far, and what they take (StepTimes). */
  readonly steps: number;
  readonly cost: StepCost;
  /** Idle pages that were found again. */
  readonly foundPages: number;
  /**
   * Pages that were asked for after their memory had been taken (PagePool), and how many others were taken meanwhile,
   * in all: with so many pages more on average, they would have been there.
   */
  readonly lostPages: number;
  readonly lostDistance: number;
}

/** A model on a device, as the budget sees it. */
export interface MemoryUser {
  /** For messages. */
  readonly name: string;
  readonly maxPages: number;
  readonly piecePages: number;
  readonly pieceBytes: number;
  /** Pages that its longest sequence with pages may need, and the first that waits, if that has room: never fewer. */
  readonly leastPages: number;
  /** Pages that the longest of its requests may need. */
  readonly acceptedPages: number;
  /** Pages that whoever asks it again and again says are needed, held or not; 0 or absent: nobody says. */
  readonly keptPages?: number;
  use(): MemoryUse;
  /**
   * Has memory for pages 0 to `pages` − 1 and no others: sequences that hold later ones give theirs back before those
   * are unmapped, and new pages are used once they are mapped. Resolves with the pages that it has: fewer than asked
   * where the device had no memory left. Rejects where the device is gone.
   */
  resize(pages: number): Promise<number>;
}

export interface BudgetOptions {
  /** Bytes for keys and values of all models. */
  readonly bytes: number;
  /** Shares of models, in the order in which they are added. Default: memory moves by itself. */
  readonly split?: readonly number[];
  /** Seconds, from any time on. */
  readonly now?: () => number;
  /** Calls `run` later. */
  readonly after?: (seconds: number, run: () => void) => void;
  readonly policy?: Partial<SplitPolicy>;
}

/** Seconds over which times of steps, and pages found and lost, are averaged. */
const STEP_WINDOW = 1;
const PAGE_WINDOW = 4;
/** Seconds in which the pages that a model held count less and less, once it holds fewer. */
const HELD_WINDOW = 1;
/** Of a second: the fixed time of a model's steps before there were any. */
const FIRST_FIXED = 0.5;
/** Seconds between two looks, and between two moves of memory that is in use. */
const LOOK = 0.05;
const MOVE = 0.25;
/** Share of the memory by which a model may have more or less than what stated needs say. */
const NEAR = 0.04;
/** After the device could not give what the budget says, this many seconds until it is asked again. */
const RETRY = 10;
/** Memory that comes back within so many seconds should not have moved: it is then dearer, and gets cheaper again. */
const RETURN = 3;
const MAX_CAUTION = 4;
const CAUTION_WINDOW = 15;

interface Member {
  readonly user: MemoryUser;
  /** Its place in the split, and its share. */
  readonly slot: number;
  readonly share: number | undefined;
  pages: number;
  last: MemoryUse;
  at: number;
  fixed: number;
  found: number;
  lost: number;
  lostDistance: number;
  /** When it last gave memory that was in use, and how many times as much its memory counts since it came back. */
  gaveAt: number;
  caution: number;
  /** Pages that it held lately, at most. */
  peak: number;
  /** Whether nobody has decided yet what it gets. */
  isNew: boolean;
}

export class MemoryBudget {
  private total: number;
  private readonly split: readonly number[] | undefined;
  private readonly now: () => number;
  private readonly after: (seconds: number, run: () => void) => void;
  private readonly policy: SplitPolicy;
  private readonly members: Member[] = [];
  private moving: Promise<void> | undefined;
  private mustLook = false;
  private isWatched = false;
  private nextLook = 0;
  private nextMove = 0;
  /** What the device turned out to have, until `retryAt`. */
  private ceiling = Infinity;
  private retryAt = 0;
  /** Times that memory went from one model to another, and the bytes. */
  moves = 0;
  movedBytes = 0;

  constructor({ bytes, split, now, after, policy }: BudgetOptions) {
    this.total = bytes;
    this.split = split;
    this.now = now ?? (() => performance.now() / 1000);
    this.after = after ?? ((seconds, run) => void setTimeout(run, 1000 * seconds));
    this.policy = { ...SPLIT_POLICY, ...policy };
  }

  /** Bytes of the budget, and of those that no model has. */
  get bytes(): number {
    return Math.min(this.total, this.ceiling);
  }

  get freeBytes(): number {
    return this.bytes - this.members.reduce((sum, member) => sum + bytesOf(member), 0);
  }

  /**
   * One more model, with at least `leastPages` for its requests. It gets memory soon (`settled`). Throws UserError
   * where others leave too little.
   */
  add(user: MemoryUser, leastPages = 1): void {
    const slot = [...this.members.keys(), this.members.length].find((i) =>
      this.members.every((each) => each.slot !== i),
    )!;
    const share = this.split?.[slot];
    const needs = piecesFor(user, leastPages) * user.pieceBytes;
    const others = this.members.reduce((sum, member) => sum + acceptedBytes(member), 0);
    const room = share === undefined ? this.bytes - others : Math.min(this.bytes - others, this.shareBytes(share));
    if (needs > room)
      throw new UserError(
        `${user.name}: needs ${bytesText(needs)} for keys and values, and there are ${bytesText(Math.max(0, room))}` +
          (others > 0 ? ` beside ${this.members.map((each) => each.user.name).join(', ')}` : ''),
        room >= user.pieceBytes
          ? `${Math.floor(room / user.pieceBytes) * user.piecePages * PAGE_TOKENS} tokens would fit: ` +
              'ask for shorter texts'
          : 'unload a model, or use a device with more memory',
      );
    const use = user.use();
    const at = this.now();
    this.members.push({
      user,
      slot,
      share,
      pages: use.pages,
      last: use,
      at,
      fixed: FIRST_FIXED,
      found: 0,
      lost: 0,
      lostDistance: 0,
      gaveAt: -Infinity,
      caution: 1,
      peak: 0,
      isNew: true,
    });
    this.look();
  }

  /** The model is gone, and its memory with it. */
  remove(user: MemoryUser): void {
    const i = this.members.findIndex((member) => member.user === user);
    if (i < 0) return;
    this.members.splice(i, 1);
    this.look();
  }

  /** Pages that a request of the model may ever have: all but the smallest memory of others, or its fixed share. */
  roomFor(user: MemoryUser): number {
    return this.roomBeside(user, ({ user: other }) => other.pieceBytes);
  }

  /** Pages that a sequence may need which begins now: what those of other models do not. */
  roomNow(user: MemoryUser): number {
    return this.roomBeside(user, leastBytes);
  }

  private roomBeside(user: MemoryUser, bytesOfOther: (other: Member) => number): number {
    const own = this.members.find((member) => member.user === user);
    const others = this.members.reduce((sum, member) => sum + (member === own ? 0 : bytesOfOther(member)), 0);
    const share = own?.share === undefined ? Infinity : this.shareBytes(own.share);
    const room = Math.min(this.bytes - others, share);
    return Math.min(user.maxPages, Math.max(0, Math.floor(room / user.pieceBytes)) * user.piecePages);
  }

  /** Loops call it after each step, and where sequences wait for pages. Decides at most every 50 ms whether to move. */
  report(user: MemoryUser): void {
    if (this.moving !== undefined) return;
    if (this.now() >= this.nextLook || isStarving(user)) this.look();
  }

  /** Whether memory is on its way. */
  get isMoving(): boolean {
    return this.moving !== undefined;
  }

  /** Memory that was on its way is where it shall be. */
  async settled(): Promise<void> {
    while (this.moving !== undefined) await this.moving;
  }

  /**
   * The budget is `bytes` from now on. Resolves when models have given up what is more than that. Rejects with
   * UserError where that is less than they need.
   */
  async setBytes(bytes: number): Promise<void> {
    const least = this.members.reduce((sum, member) => sum + acceptedBytes(member), 0);
    if (bytes < least)
      throw new UserError(
        `keys and values of ${this.members.map((each) => each.user.name).join(', ')} need ${bytesText(least)}, and ` +
          `${bytesText(Math.max(0, bytes))} would be left`,
        'unload a model first, or use a device with more memory',
      );
    this.total = bytes;
    this.look();
    await this.settled();
  }

  private shareBytes(share: number): number {
    return Math.floor((this.bytes * share) / this.split!.reduce((sum, each) => sum + each, 0));
  }

  /** Decides now; after what is on its way, where something is. */
  private look(): void {
    this.mustLook = this.moving !== undefined;
    if (this.mustLook) return;
    const now = this.now();
    this.nextLook = now + LOOK;
    if (now >= this.retryAt) this.ceiling = Infinity;
    for (const member of this.members) measure(member, now);
    const targets = this.targets(now);
    for (const member of this.members) member.isNew = false;
    const moves = this.members.flatMap((member, i) =>
      targets[i] === member.pages ? [] : [{ member, pages: targets[i]! }],
    );
    if (moves.length === 0) return this.watch();
    this.moving = this.move(moves, now).finally(() => {
      this.moving = undefined;
      this.nextLook = this.now() + LOOK;
      if (this.mustLook) this.look();
      else this.watch();
    });
  }

  /** A loop that cannot go on without memory has nothing to report: a timer looks after it. */
  private watch(): void {
    if (this.isWatched || !this.members.some(({ user }) => isStarving(user))) return;
    this.isWatched = true;
    this.after(LOOK, () => {
      this.isWatched = false;
      this.look();
    });
  }

  /** Pages that each model shall have. */
  private targets(now: number): readonly number[] {
    const stated = this.split === undefined ? this.statedPieces() : undefined;
    const pieces =
      stated ??
      (this.split === undefined
        ? splitMemory(
            this.members.map(memoryOf),
            this.bytes,
            now < this.nextMove ? { ...this.policy, stride: 0 } : this.policy,
          )
        : this.members.map(({ user, share = 0 }) => Math.floor(this.shareBytes(share) / user.pieceBytes)));
    const used = this.members.reduce((sum, { user }, i) => sum + pieces[i]! * user.pieceBytes, 0);
    return this.members.map(({ user, isNew, share }, i) => {
      // A new model gets half of the free memory, so that its first requests need not wait for any.
      const more = isNew && share === undefined ? Math.floor((this.bytes - used) / 2 / user.pieceBytes) : 0;
      return Math.min(user.maxPages, (pieces[i]! + Math.max(0, more)) * user.piecePages);
    });
  }

  /** Where every model's needs are stated, memory follows them; undefined where they are not, or do not fit. */
  private statedPieces(): readonly number[] | undefined {
    const needs = this.members.map(({ user }) => piecesFor(user, user.keptPages ?? 0) * user.pieceBytes);
    if (needs.length < 2 || needs.includes(0)) return undefined;
    const all = needs.reduce((sum, need) => sum + need, 0);
    const pieces = this.members.map(({ user }, i) => Math.floor((this.bytes * needs[i]!) / all / user.pieceBytes));
    if (this.members.some((each, i) => pieces[i]! * each.user.pieceBytes < leastBytes(each))) return undefined;
    const isNear = this.members.every(
      (member, i) => Math.abs(pieces[i]! * member.user.pieceBytes - bytesOf(member)) <= NEAR * this.bytes,
    );
    return isNear && this.freeBytes >= 0 ? this.members.map(({ user, pages }) => piecesFor(user, pages)) : pieces;
  }

  /** Memory is taken before it is given. */
  private async move(
    moves: readonly { readonly member: Member; readonly pages: number }[],
    now: number,
  ): Promise<void> {
    const less = moves.filter(({ member, pages }) => pages < member.pages);
    const more = moves.filter(({ member, pages }) => pages > member.pages);
    for (const { member, pages } of less) {
      if (pages >= member.last.held + member.last.idle) continue;
      member.gaveAt = now;
      this.nextMove = now + MOVE;
    }
    const had = less.reduce((sum, { member }) => sum + bytesOf(member), 0);
    await Promise.all(less.map(({ member, pages }) => resize(member, pages)));
    const given = had - less.reduce((sum, { member }) => sum + bytesOf(member), 0);
    if (given > 0 && more.length > 0) {
      this.moves++;
      this.movedBytes += given;
    }
    for (const { member, pages } of more) {
      const { user } = member;
      const mine = piecesFor(user, member.pages);
      const room = Math.max(0, Math.floor(this.freeBytes / user.pieceBytes));
      const wanted = Math.min(pages, (mine + room) * user.piecePages);
      if (wanted <= member.pages) continue;
      if (less.length > 0) noteGain(member, now);
      await resize(member, wanted);
      if (member.pages < wanted) {
        // Another process took memory: what there is has to do.
        this.ceiling = this.members.reduce((sum, each) => sum + bytesOf(each), 0);
        this.retryAt = this.now() + RETRY;
        // It wakes up, and gives up what does not fit.
        await resize(member, member.pages);
      }
    }
  }
}

const piecesFor = ({ piecePages }: MemoryUser, pages: number): number => Math.ceil(pages / piecePages);

const bytesOf = ({ user, pages }: Member): number => piecesFor(user, pages) * user.pieceBytes;

/** Bytes that the model cannot do without, now; and for any of its requests. */
const leastBytes = ({ user }: Member): number => piecesFor(user, Math.max(1, user.leastPages)) * user.pieceBytes;
const acceptedBytes = ({ user }: Member): number => piecesFor(user, Math.max(1, user.acceptedPages)) * user.pieceBytes;

function isStarving(user: MemoryUser): boolean {
  const { held, isShort, pages } = user.use();
  return pages < user.leastPages || (held === 0 && isShort);
}

/** A device that is gone has no memory; its loop asks for it again when another is there. */
async function resize(member: Member, pages: number): Promise<void> {
  try {
    member.pages = await member.user.resize(pages);
  } catch {
    member.pages = member.user.use().pages;
  }
}

/** Rates since the last look are averaged with those before. */
function measure(member: Member, now: number): void {
  const { last } = member;
  const use = member.user.use();
  const seconds = now - member.at;
  member.pages = use.pages;
  if (!(seconds > 0)) return;
  const average = (before: number, count: number, window: number): number =>
    before + (1 - Math.exp(-seconds / window)) * (count / seconds - before);
  member.caution = 1 + (member.caution - 1) * Math.exp(-seconds / CAUTION_WINDOW);
  member.peak = Math.max(use.held, member.peak * Math.exp(-seconds / HELD_WINDOW));
  const { step, token } = use.cost;
  const pageSeconds = token * PAGE_TOKENS;
  // A model that has nothing to do is expected to begin as it stopped.
  if (use.held + use.wanted > 0 || use.steps > last.steps)
    member.fixed = average(member.fixed, (use.steps - last.steps) * step, STEP_WINDOW);
  member.found = average(member.found, (use.foundPages - last.foundPages) * pageSeconds, PAGE_WINDOW);
  member.lost = average(member.lost, (use.lostPages - last.lostPages) * pageSeconds, PAGE_WINDOW);
  const lostPages = use.lostPages - last.lostPages;
  if (lostPages > 0) member.lostDistance = (use.lostDistance - last.lostDistance) / lostPages;
  member.last = use;
  member.at = now;
}

function memoryOf(member: Member): ModelMemory {
  const { user, last } = member;
  const { held, idle, wanted, isShort, cost } = last;
  const pieces = piecesFor(user, last.pages);
  const kept = Math.max(held, Math.min(member.peak, held + idle));
  return {
    pieceBytes: user.pieceBytes,
    pieces,
    least: piecesFor(user, Math.max(1, user.leastPages)),
    most: piecesFor(user, user.maxPages),
    held: kept / user.piecePages,
    idle: Math.max(0, held + idle - kept) / user.piecePages,
    wanted: wanted / user.piecePages,
    isShort,
    fixed: member.fixed,
    saved: member.found,
    caution: member.caution,
    lost: member.lost,
    lostPieces: member.lostDistance / user.piecePages,
    refill: cost.token * user.piecePages * PAGE_TOKENS,
  };
}

/** Memory does not swing: what a model gets back soon after it gave it counts for more from then on. */
function noteGain(member: Member, now: number): void {
  if (now < member.gaveAt + RETURN) member.caution = Math.min(MAX_CAUTION, 2 * member.caution);
}
