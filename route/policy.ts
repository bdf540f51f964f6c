/**
 * The words of the routing policy: what a router is told, what it answers, and what it can be set to. Times are
 * milliseconds of any clock that the caller has (`now`), which never goes back; the policy itself reads no clock.
 * Sizes of work are tokens: those of prompts that are still to be computed, and those that are still to be written.
 */

/**
 * An adapter on a base model. `base` is the fingerprint of the base, `revision` the hash of the adapter's content: what
 * two replicas compute under equal pairs of these is equal to the byte. `name` is what clients ask for; it has one
 * revision at a time, and keeps its place on the ring when its revision changes.
 */
export interface AdapterKey {
  readonly base: string;
  readonly name: string;
  readonly revision: string;
}

/** One adapter that a replica says it can answer with. */
export interface HeldAdapter {
  readonly name: string;
  readonly revision: string;
  /** It lies in a slot of the device: a request finds it there. Default true. */
  readonly isResident?: boolean;
  /** Requests of it that wait or run there. Default 0. */
  readonly requests?: number;
}

/** What a replica says of itself. Each report replaces the one before. */
export interface ReplicaReport {
  /** Fingerprint of its base model. */
  readonly base: string;
  readonly adapters: readonly HeldAdapter[];
  /** Adapters that fit on its device at once; 0: it takes none. */
  readonly slots: number;
  /** Requests that a step can hold: how large it is beside the others. Default: as large as they are. */
  readonly maxRunning?: number;
  /** Requests in its steps, and behind them. */
  readonly running: number;
  readonly waiting: number;
  /** Tokens of prompts that wait or are being computed. */
  readonly queueTokens: number;
}

/** A request that needs a replica. */
export interface RouteRequest {
  /** Fingerprint of the model; undefined: that of the adapter, or the only base there is. */
  readonly base?: string | undefined;
  /** Name of an adapter; undefined: the base itself. */
  readonly adapter?: string | undefined;
  /** Tokens of its prompt, estimated. */
  readonly tokens: number;
  /** Tokens that may come, at most or as expected. Default: what answers had so far. */
  readonly newTokens?: number | undefined;
  /** What prompts that begin alike have in common: a hash of the first pages or characters, or a session's id. */
  readonly prefix?: string | undefined;
  /** Tokens of that beginning: what a replica saves that has computed it. Default: none is known. */
  readonly prefixTokens?: number | undefined;
  /** Replicas that were tried already, or that may not be used. */
  readonly except?: ReadonlySet<string> | undefined;
  /** Only these, where a caller is told so (the endpoint picker's subset). */
  readonly among?: ReadonlySet<string> | undefined;
}

/** A replica for a request. Pass it to `begin` at once if the request goes there. */
export interface Route {
  readonly kind: 'route';
  readonly replica: string;
  readonly base: string;
  /** What the replica is to answer with; undefined: the base. The request keeps this revision to its end. */
  readonly adapter: AdapterKey | undefined;
  /** Whether the replica is known to have the adapter. If not it must be loaded there before the request is sent. */
  readonly isHeld: boolean;
  /** Whether the adapter's holders were at their bounds, so that the request goes to the next one on the ring. */
  readonly isSpill: boolean;
}

/**
 * Nobody can take it. `no such adapter`, `no such model`: no name, or no replica, of it is known (404). `no replica`:
 * all that have the base are gone, draining or tried (503). `full`: too much waits everywhere (429).
 */
export interface Refusal {
  readonly kind: 'refusal';
  readonly why: 'no such adapter' | 'no such model' | 'no replica' | 'full';
}

/**
 * How a request ended. `answered`: whole. `cancelled`: the client left. `failed`: the replica broke off, or could not
 * be reached. `missing`: it said that it has no such adapter, which corrects what is known of it.
 */
export type Outcome = 'answered' | 'cancelled' | 'failed' | 'missing';

/** A request under way, of `begin`. Opaque: hand it to `firstToken` and `finish`. */
export interface Ticket {
  readonly replica: string;
  readonly adapter: AdapterKey | undefined;
  readonly startedAt: number;
}

/** Why an adapter is loaded: its holders are too few; its old holder leaves; it is to follow an older revision. */
export type LoadReason = 'demand' | 'moved' | 'drain' | 'revision';

/**
 * What is to be done now, of `plan`. `load`: make the replica able to answer with the adapter, then say `loaded` or
 * `loadFailed`. `unload`: no request of it is under way there and none will come; then say `unloaded`. `swap`: the name
 * means the new revision from now on (done already; for logs, and for whoever keeps names). An action is not repeated
 * while it is being done; one that is neither confirmed nor reported in `actionTimeoutMs` comes again.
 */
export type Action =
  | { readonly kind: 'load'; readonly replica: string; readonly adapter: AdapterKey; readonly why: LoadReason }
  | { readonly kind: 'unload'; readonly replica: string; readonly adapter: AdapterKey }
  | { readonly kind: 'swap'; readonly from: AdapterKey; readonly to: AdapterKey };

export type ReplicaState = 'active' | 'draining';

/** What the router knows of a replica, for pages and metrics. */
export interface ReplicaView {
  readonly replica: string;
  readonly state: ReplicaState;
  readonly base: string | undefined;
  readonly inFlight: number;
  /** Requests that it may have now. */
  readonly bound: number;
  readonly queueTokens: number;
  readonly adapters: readonly AdapterKey[];
  /** Draining only: nothing is under way there, and others have what it held. */
  readonly isIdle: boolean;
}

export interface PolicySettings {
  /** ε of the bound: a replica has at most ⌈(1 + ε) · its share of the requests in flight⌉. */
  readonly epsilon: number;
  /** Part of what a replica runs at once that no bound keeps from it: below that it is not loaded. */
  readonly freePart: number;
  /** Points of a replica on the ring. */
  readonly points: number;
  /** Replicas with the adapter that are compared for a request; of many a draw of so many. */
  readonly choices: number;
  /** Replicas without an adapter that are compared for a spill: the next ones on the ring, where spills meet. */
  readonly spillChoices: number;
  /** Time between two looks at demand. */
  readonly periodMs: number;
  /** Weight of the last period in the mean demand of an adapter, from 0 to 1. */
  readonly smoothing: number;
  /** An adapter has so many holders that each has at most this part of a replica's share of all demand. */
  readonly holderShare: number;
  /** Quiet periods after which an adapter loses a holder. */
  readonly quietPeriods: number;
  /** Spills to one replica in a period that make it a holder. */
  readonly spillsToHold: number;
  /** What loading an adapter is worth beside a queue, in prompts of mean length: holders so far behind are spared. */
  readonly loadPrompts: number;
  /** What a request that runs is worth beside a queue, in tokens of prompts. */
  readonly runningTokens: number;
  /** What a token of an answer is worth in demand, in tokens of prompts. */
  readonly newTokenWeight: number;
  /** Requests that may be in flight, for each that the replicas can run; more are refused. */
  readonly maxOversubscription: number;
  /** An action that is not confirmed in this time is proposed again. */
  readonly actionTimeoutMs: number;
}

export const DEFAULT_POLICY: PolicySettings = {
  epsilon: 0.25,
  freePart: 0.125,
  points: 128,
  choices: 16,
  spillChoices: 2,
  periodMs: 30_000,
  smoothing: 0.5,
  holderShare: 0.5,
  quietPeriods: 3,
  spillsToHold: 4,
  loadPrompts: 2,
  runningTokens: 32,
  newTokenWeight: 4,
  maxOversubscription: 16,
  actionTimeoutMs: 120_000,
};

/** Most that is believed of anybody: longer names, and more of them, are not taken. */
export const POLICY_LIMITS = {
  replicas: 1024,
  nameCharacters: 512,
  /** Names that a router is told, and as many that it hears of. */
  adapters: 65_536,
  /** Adapters of one report. */
  reported: 4096,
  slots: 65_536,
  /** Requests, and tokens, that a replica can say it has. */
  requests: 1 << 20,
  tokens: 1 << 30,
} as const;

/**
 * The policy: a function of what it is told. Nothing that it knows has to survive it: after one round of reports a new
 * one decides as the old one did (names that have two revisions at that moment must be told again with `revise`).
 */
export interface Routing {
  /** A replica that answers. It gets requests after its first report. Joining again ends its drain. */
  join(replica: string, now: number): void;
  /** It is gone, or does not answer. What is under way there is finished by its ticket as always. */
  leave(replica: string, now: number): void;
  /** It gets no new request; others load what it held. `view(replica).isIdle`: it can be stopped. */
  drain(replica: string, now: number): void;
  /** Throws nothing, whatever is in it: what makes no sense is left out. */
  report(replica: string, report: ReplicaReport, now: number): void;

  /** A name and what it means, at once: when names are read first. */
  announce(adapter: AdapterKey, now: number): void;
  /** A name's next revision: it is loaded wherever the old one is, and then takes its place (`plan`). */
  revise(adapter: AdapterKey, now: number): void;
  /** The name is gone: requests for it are refused, and holders unload it once nothing of it is under way. */
  withdraw(base: string, name: string, now: number): void;
  /** What a name means now. */
  resolve(name: string, base?: string): AdapterKey | undefined;

  /** Changes nothing that another choice depends on. */
  choose(request: RouteRequest, now: number): Route | Refusal;
  begin(route: Route, request: RouteRequest, now: number): Ticket;
  /** Its prompt is computed: it is out of the queue. */
  firstToken(ticket: Ticket, now: number): void;
  /** Once for each ticket; later calls do nothing. `newTokens`: those of the answer, where they are known. */
  finish(ticket: Ticket, outcome: Outcome, now: number, newTokens?: number): void;

  /** Call it every second or so, and after joins, drains and revisions. */
  plan(now: number): readonly Action[];
  loaded(replica: string, adapter: AdapterKey, now: number): void;
  loadFailed(replica: string, adapter: AdapterKey, now: number): void;
  unloaded(replica: string, adapter: AdapterKey, now: number): void;

  view(replica: string, now: number): ReplicaView | undefined;
  replicas(): readonly string[];
}
