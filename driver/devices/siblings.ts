/**
 * Replicas that start together talk to each other through their parent, which passes on every word and says who is
 * gone. A replica that takes another's place later has no siblings: it loads by itself.
 */
import type { WeightExchange, WeightOffer } from '../../runtime/cuda/shareWeights.js';

/** Which replica a process is, of how many that start together. */
export interface Membership {
  readonly index: number;
  readonly count: number;
}

/** Plain data. */
export type SiblingWord =
  | { readonly kind: 'offer'; readonly stage: number; readonly offer: WeightOffer }
  | { readonly kind: 'finished'; readonly stage: number }
  /** From the parent: its process ended, or it could not open the model. */
  | { readonly kind: 'gone'; readonly reason: string };

type Send = (from: number, word: SiblingWord) => void;

/** The parent's side. What is said before a sibling listens is kept for it. */
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

  /** For good: whoever takes its place is no member. */
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
  /** Of those that are gone, by replica. */
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

  /** Of one stage; what siblings said of it before is not lost. */
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
      offerOf: (index) => siblings[index]!.offer,
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

  /** An offer that was made stands: what it names outlives its process until nobody has it open. */
  private lose(sibling: Sibling | undefined, reason: string): void {
    sibling?.hasOffered({ refused: reason });
    sibling?.hasFinished();
  }
}
