/**
 * What names of adapters mean. A name means one revision of its content at a time. A new one is loaded beside it by all
 * holders, and then takes its place in one step; the old one stays where requests of it are under way.
 */
import { noDemand, type Demand } from './demand.js';
import { hashText } from './hash.js';
import { type AdapterKey, POLICY_LIMITS } from './policy.js';

export class Name {
  readonly base: string;
  readonly name: string;
  /** Its key on the ring, and the hash of that. Revisions of a name have one place. */
  readonly ringKey: string;
  readonly order: number;
  current: AdapterKey;
  /** What it is to mean next. */
  next: AdapterKey | undefined;
  /** Nobody announced it: replicas were heard to hold it. Then it means what most of them hold. */
  isHeard: boolean;
  isWithdrawn = false;
  readonly revisions = new Map<string, AdapterKey>();
  /** Revisions that it meant before: they are unloaded where nothing of them is under way. */
  readonly retired = new Set<AdapterKey>();
  /** The last of them: a replica that comes back may hold one still. */
  private readonly past: string[] = [];
  readonly demand: Demand = noDemand();
  /** Who is to hold it, in the order of the ring. */
  holders: readonly string[] = [];
  /** Spills of this period by replica, and those that have become holders by them. */
  readonly spills = new Map<string, number>();

  constructor(base: string, name: string, revision: string, isHeard: boolean) {
    this.base = base;
    this.name = name;
    this.ringKey = `${base}\0${name}`;
    this.order = hashText(this.ringKey);
    this.current = this.keyOf(revision);
    this.isHeard = isHeard;
  }

  /** The one object that stands for a revision: keys of this router are compared by identity. */
  keyOf(revision: string): AdapterKey {
    let key = this.revisions.get(revision);
    if (key === undefined) {
      key = Object.freeze({ base: this.base, name: this.name, revision });
      this.revisions.set(revision, key);
      if (this.past.includes(revision)) this.retired.add(key);
    }
    return key;
  }

  /** It means this no more. */
  retire(key: AdapterKey): void {
    this.retired.add(key);
    if (this.past.push(key.revision) > KEPT_PAST) this.past.shift();
  }

  /** It means this, now or next. */
  mean(key: AdapterKey): void {
    this.retired.delete(key);
    for (let at; (at = this.past.indexOf(key.revision)) >= 0;) this.past.splice(at, 1);
  }
}

/** Former revisions of a name that are remembered. */
const KEPT_PAST = 16;

/** All names, by base. */
export class Names {
  private readonly byBase = new Map<string, Map<string, Name>>();
  /** Names that were announced, and those that were heard of. What replicas say never crowds out what is announced. */
  private readonly counts = { announced: 0, heard: 0 };

  get(base: string, name: string): Name | undefined {
    return this.byBase.get(base)?.get(name);
  }

  /** Finds a name of any base; of several the one of the lowest base. */
  find(name: string): Name | undefined {
    let found: Name | undefined;
    for (const names of this.byBase.values()) {
      const each = names.get(name);
      if (each !== undefined && (found === undefined || each.base < found.base)) found = each;
    }
    return found;
  }

  /** The name, which is made where it is new; undefined where there are too many. */
  have(base: string, name: string, revision: string, isHeard: boolean): Name | undefined {
    let names = this.byBase.get(base);
    if (names === undefined) this.byBase.set(base, (names = new Map()));
    let found = names.get(name);
    if (found === undefined) {
      const kind = isHeard ? 'heard' : 'announced';
      if (this.counts[kind] >= POLICY_LIMITS.adapters) return undefined;
      this.counts[kind]++;
      names.set(name, (found = new Name(base, name, revision, isHeard)));
    }
    return found;
  }

  /** The object that stands for a key that came from outside; undefined if no such name is known. */
  own(key: AdapterKey): AdapterKey | undefined {
    return this.get(key.base, key.name)?.keyOf(key.revision);
  }

  /** Somebody announced what was only heard of before. */
  know(name: Name): void {
    if (!name.isHeard) return;
    name.isHeard = false;
    this.counts.heard--;
    this.counts.announced++;
  }

  delete(name: Name): void {
    const names = this.byBase.get(name.base);
    if (names?.delete(name.name) !== true) return;
    this.counts[name.isHeard ? 'heard' : 'announced']--;
    if (names.size === 0) this.byBase.delete(name.base);
  }

  ofBase(base: string): Iterable<Name> {
    return this.byBase.get(base)?.values() ?? [];
  }

  *[Symbol.iterator](): Iterator<Name> {
    for (const names of this.byBase.values()) yield* names.values();
  }
}
