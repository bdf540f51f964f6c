/**
 * Replicas that start together communicate through their parent, which forwards every message and reports lost
 * replicas. A replica that is started later as a replacement has no siblings and loads by itself.
 */
import { at } from '../../system/at.js';
import type { WeightExchange, WeightOffer } from '../../runtime/cuda/shareWeights.js';

/** The index of a process among those that start together. */
export interface Membership {
  readonly index: number;
  readonly count: number;
}

/** A message between siblings, as plain data. */
export type SiblingWord =
  | { readonly kind: 'offer'; readonly stage: number; readonly offer: WeightOffer }
  | { readonly kind: 'finished'; readonly stage: number }
  /** From the parent: the sibling's process ended, or it could not open the model. */
  | { readonly kind: 'gone'; readonly reason: string };

type Send = (from: number, word: SiblingWord) => void;

/** The parent's side. Messages for a sibling that does not listen yet are kept. */
export class SiblingRelay {
  private readonly members: (
    | { readonly state: 'awaited'; readonly kept: [from: number, word: SiblingWord][] }
    | { readonly state: 'here'; readonly send: Send }
    | { readonly state: 'gone' }
  )[];

  readonly count: number;

  constructor(count: number) {
    this.count = count;
    this.members = Array.from({ length: count }, () => ({ state: 'awaited', kept: [] }));
  }

  join(index: number, send: Send): void {
    const member = this.members[index];
    if (member?.state !== 'awaited') return;
    this.members[index] = { state: 'here', send };
    for (const [from, word] of member.kept) send(from, word);
  }

  say(index: number, word: SiblingWord): void {
    if (this.members[index]?.state === 'gone') return;
    this.members.forEach((member, other) => {
      if (other === index) return;
      if (member.state === 'awaited') member.kept.push([index, word]);
      else if (member.state === 'here') member.send(index, word);
    });
  }

  /** Removes a sibling for good: its replacement is not a member. */
  leave(index: number, reason: string): void {
    this.say(index, { kind: 'gone', reason });
    this.members[index] = { state: 'gone' };
  }
}

interface Sibling {
  readonly offer: Promise<WeightOffer>;
  readonly hasOffered: (offer: WeightOffer) => void;
  readonly finished: Promise<void>;
  readonly hasFinished: () => void;
}

function makeSibling(): Sibling {
  let [hasOffered, hasFinished]: [Sibling['hasOffered'], Sibling['hasFinished']] = [() => undefined, () => undefined];
  const offer = new Promise<WeightOffer>((resolve) => {
    hasOffered = resolve;
  });
  const finished = new Promise<void>((resolve) => {
    hasFinished = resolve;
  });
  return { offer, hasOffered, finished, hasFinished };
}

/** A replica's side. */
export class Siblings {
  private readonly member: Membership;
  private readonly send: (word: SiblingWord) => void;
  private readonly byStage = new Map<number, readonly Sibling[]>();
  /** Why replicas are gone, by index. */
  private readonly reasons = new Map<number, string>();

  constructor(member: Membership, send: (word: SiblingWord) => void) {
    this.member = member;
    this.send = send;
  }

  hear(from: number, word: SiblingWord): void {
    switch (word.kind) {
      case 'offer':
        return this.of(word.stage)[from]?.hasOffered(word.offer);
      case 'finished':
        return this.of(word.stage)[from]?.hasFinished();
      case 'gone': {
        this.reasons.set(from, word.reason);
        for (const siblings of this.byStage.values()) this.lose(siblings[from], word.reason);
        return undefined;
      }
      default:
        return word satisfies never;
    }
  }

  /** The exchange of one stage. Messages that siblings sent for it earlier are kept. */
  exchange(stage: number): WeightExchange {
    const siblings = this.of(stage);
    const others = siblings.filter((_, index) => index !== this.member.index);
    let isShared = false;
    return {
      ...this.member,
      offer: (offer) => {
        isShared = 'shared' in offer;
        this.send({ kind: 'offer', stage, offer });
      },
      offerOf: (index) => at(siblings, index).offer,
      finish: () => this.send({ kind: 'finished', stage }),
      siblingsFinished: async () => {
        if (isShared) await Promise.all(others.map(({ finished }) => finished));
      },
    };
  }

  private of(stage: number): readonly Sibling[] {
    const known = this.byStage.get(stage);
    if (known !== undefined) return known;
    const siblings = Array.from({ length: this.member.count }, makeSibling);
    for (const [from, reason] of this.reasons) this.lose(siblings[from], reason);
    this.byStage.set(stage, siblings);
    return siblings;
  }

  /** An existing offer stays valid: the memory that it names outlives its process while another has it open. */
  private lose(sibling: Sibling | undefined, reason: string): void {
    sibling?.hasOffered({ refused: reason });
    sibling?.hasFinished();
  }
}
