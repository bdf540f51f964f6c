/**
 * One request and its answer: it goes to the replica that the policy names, and to another one as long as nothing of an
 * answer has been sent. Answers are a function of the request, its seed and the model, so that a request that is asked
 * twice is answered as if it had been asked once; the work of the first time is all that is lost.
 */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { createHash } from 'node:crypto';
import { defined } from '../../system/defined.js';
import { isRecord } from '../../system/json.js';
import { ApiError } from '../../serve/apiError.js';
import type { Outcome, Route, RouteRequest, Routing, Ticket } from '../policy.js';
import { type AdapterBook, heldName } from './adapterBook.js';
import { type BodyFacts, withModel } from './bodyScan.js';
import type { RouteConfig } from './config.js';
import type { Tell } from './events.js';
import type { Fleet } from './fleet.js';
import type { Placement } from './placement.js';
import { isEventStream, relay } from './relay.js';
import type { Replica } from './replica.js';
import { readSome } from './replicaLink.js';

export interface Asked {
  readonly id: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  /** Undefined: no body. */
  readonly body: Buffer | undefined;
  readonly facts: BodyFacts | undefined;
  /** Headers of the request to a replica that wants this key. */
  headersFor(key: string | undefined, length: number | undefined): OutgoingHttpHeaders;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  /** Resolves with false when the client is gone. */
  readonly gone: Promise<false>;
}

/** What came of it, for logs and metrics. */
export interface Told {
  readonly outcome: 'answered' | 'refused' | 'cancelled' | 'cut';
  readonly replica: string | undefined;
  readonly attempts: number;
}

export interface ForwardCounts {
  /** Requests that went to a replica that had their adapter, and that did not. */
  held: number;
  missed: number;
  spilled: number;
  /** By reason. */
  readonly retries: Map<string, number>;
  readonly byReplica: Map<string, Map<string, number>>;
}

/** Bytes of text for a token: what an estimate of work needs. */
const BYTES_OF_TOKEN = 4;
const MAX_ERROR_BYTES = 256 << 10;
/** Before a replica that is full, or was never there, is asked again. */
const [LEAST_WAIT_MS, MOST_WAIT_MS] = [50, 5000];

/** A replica's answer that is another one's to give, or a reason why there was none. */
interface Miss {
  readonly why: string;
  readonly outcome: Outcome;
  /** What the client is told where nobody answers otherwise. */
  readonly error: ApiError | { readonly response: IncomingMessage; readonly body: Buffer };
  readonly waitMs?: number;
  /** The replica was not asked: it could not load the adapter. */
  readonly isUnasked?: boolean;
  /** Another try at the same replica makes sense. */
  readonly isWorthRepeating?: boolean;
  /** Waiting changes nothing: where no other replica is left, the client is told. */
  readonly isFinal?: boolean;
}

export class Forwarder {
  readonly counts: ForwardCounts = { held: 0, missed: 0, spilled: 0, retries: new Map(), byReplica: new Map() };
  /** Requests that wait for a replica or an adapter. */
  waiting = 0;
  private readonly routing: Routing;
  private readonly fleet: Fleet;
  private readonly book: AdapterBook;
  private readonly placement: Placement;
  private readonly config: RouteConfig;
  private readonly tell: Tell;
  private readonly now: () => number;

  constructor(
    parts: { readonly routing: Routing; readonly fleet: Fleet; readonly book: AdapterBook; placement: Placement },
    config: RouteConfig,
    tell: Tell,
    now: () => number,
  ) {
    this.routing = parts.routing;
    this.fleet = parts.fleet;
    this.book = parts.book;
    this.placement = parts.placement;
    this.config = config;
    this.tell = tell;
    this.now = now;
  }

  /** Answers. Rejects with ApiError where nothing was sent, and with TornAnswer where a part was. */
  async forward(asked: Asked, response: ServerResponse): Promise<Told> {
    const { attempts: most, waitSeconds } = this.config.limits;
    const until = this.now() + 1000 * waitSeconds;
    const except = new Set<string>();
    const repeated = new Set<string>();
    let attempts = 0;
    let last: Miss | undefined;
    for (;;) {
      if (asked.signal.aborted) return { outcome: 'cancelled', replica: undefined, attempts };
      const request = this.requestOf(asked, except);
      const found = request instanceof ApiError ? request : this.routing.choose(request, this.now());
      if (found instanceof ApiError || found.kind === 'refusal') {
        const error = found instanceof ApiError ? found : this.errorOf(found.why, asked);
        if (error.status !== 503 && last === undefined) throw error;
        if (last?.isFinal === true || attempts >= most || !(await this.wait(asked, until, last?.waitMs)))
          return this.giveUp(last, error, response, attempts);
        except.clear();
        continue;
      }
      const replica = this.fleet.replicas.get(found.replica)!;
      const ticket = this.routing.begin(found, request as RouteRequest, this.now());
      const ended = await this.attempt(asked, found, ticket, replica, response);
      if (!('why' in ended)) return { ...ended, attempts: attempts + 1 };
      last = ended;
      if (ended.isUnasked !== true) attempts++;
      add(this.counts.retries, ended.why);
      add(this.byReplica(replica.id), 'retried');
      this.tell({ event: 'retry', id: asked.id, replica: replica.id, why: ended.why });
      // Once more, where it was only thought to have the adapter: it is loaded there now.
      if (ended.isWorthRepeating !== true || repeated.has(replica.id)) except.add(replica.id);
      repeated.add(replica.id);
      if (attempts >= most) return this.giveUp(last, undefined, response, attempts);
    }
  }

  /** One try at one replica. */
  private async attempt(
    asked: Asked,
    route: Route,
    ticket: Ticket,
    replica: Replica,
    response: ServerResponse,
  ): Promise<Miss | Omit<Told, 'attempts'>> {
    const leave = new AbortController();
    const onGone = (): void => leave.abort();
    asked.signal.addEventListener('abort', onGone, { once: true });
    let takenWhy: string | undefined;
    let hasBegun = false;
    const underWay = {
      takeAway: (why: string): void => {
        if (hasBegun) return;
        takenWhy = why;
        leave.abort();
      },
    };
    replica.underWay.add(underWay);
    let outcome: Outcome = 'failed';
    let newTokens: number | undefined;
    try {
      const ready = await this.ensureHeld(asked, route);
      if (ready !== undefined) return ready;
      if (asked.signal.aborted) return { outcome: 'cancelled', replica: replica.id };
      const held = route.adapter === undefined ? undefined : heldName(route.adapter);
      const { body, facts } = asked;
      const sent =
        held === undefined || body === undefined || facts === undefined ? body : withModel(body, facts, held);
      let answer: IncomingMessage;
      try {
        answer = await replica.link.send({
          ...{ method: asked.method, path: asked.path, signal: leave.signal },
          headers: asked.headersFor(replica.key, sent?.length),
          ...defined({ body: sent }),
        });
      } catch (error) {
        if (asked.signal.aborted) return ((outcome = 'cancelled'), { outcome, replica: replica.id });
        const why = takenWhy ?? (error instanceof Error ? error.message : String(error));
        if (takenWhy === undefined)
          this.fleet.suspect(replica, why, /refused|no connection|cannot be reached|no address/.test(why));
        return miss(why, 'failed');
      }
      const turned = await this.turnedAway(answer, route, replica);
      if (turned !== undefined) return ((outcome = turned.outcome), turned);
      if (response.headersSent && !isEventStream(answer)) {
        // Comments of a stream were sent: what comes now must be a stream as well.
        const text = await readSome(answer, MAX_ERROR_BYTES).catch(() => Buffer.alloc(0));
        throw new TornAnswer(messageOf(text) ?? 'the answer is of another kind than its beginning', true);
      }
      const end = await relay(answer, response, {
        ...(route.adapter === undefined || held === undefined ? {} : { rename: { held, plain: route.adapter.name } }),
        onBegin: () => {
          hasBegun = true;
          this.routing.firstToken(ticket, this.now());
        },
        onTokens: (count) => (newTokens = count),
      });
      switch (end) {
        case 'answered':
        case 'cancelled':
          return ((outcome = end), { outcome: end, replica: replica.id });
        case 'lost': {
          const why = takenWhy ?? 'it broke off before it had begun';
          if (takenWhy === undefined) this.fleet.suspect(replica, why, false);
          return miss(why, 'failed');
        }
        case 'cut':
        case 'torn':
          this.fleet.suspect(replica, 'it broke off an answer', false);
          throw new TornAnswer('The server that answered has broken off. Ask again.', end === 'cut');
        default:
          return end satisfies never;
      }
    } finally {
      asked.signal.removeEventListener('abort', onGone);
      replica.underWay.delete(underWay);
      this.routing.finish(ticket, outcome, this.now(), newTokens);
      add(this.byReplica(replica.id), outcome);
    }
  }

  /** Undefined once the replica has the adapter, or where none is asked for. */
  private async ensureHeld(asked: Asked, { replica, adapter, isHeld, isSpill }: Route): Promise<Miss | undefined> {
    if (adapter === undefined) return undefined;
    if (isSpill) this.counts.spilled++;
    // The policy counts an adapter as held from the first request on that goes there: others wait for the same load.
    const underWay = this.placement.underWay(replica, adapter);
    if (isHeld && underWay === undefined) return (this.counts.held++, undefined);
    this.counts.missed++;
    if (this.waiting >= this.config.limits.waiting) return miss('too many wait for adapters', 'failed', 429);
    this.waiting++;
    try {
      const load = underWay ?? this.placement.load(replica, adapter, 'a request needs it');
      const isThere = await Promise.race([load, asked.gone]);
      return isThere ? undefined : { ...miss('it could not load the adapter', 'failed'), isUnasked: true };
    } finally {
      this.waiting--;
    }
  }

  /** What another replica, or a later moment, may answer. The body of such an answer is read. */
  private async turnedAway(answer: IncomingMessage, { adapter }: Route, replica: Replica): Promise<Miss | undefined> {
    const { statusCode: status = 0 } = answer;
    if (status !== 404 && status !== 429 && status !== 502 && status !== 503) return undefined;
    const body = await readSome(answer, MAX_ERROR_BYTES).catch(() => Buffer.alloc(0));
    const waitMs = retryAfterMs(answer);
    const error = { response: answer, body };
    switch (status) {
      case 404:
        if (adapter !== undefined) {
          await this.fleet.listAgain(replica).catch(() => undefined);
          return { ...miss('it has no such adapter', 'missing'), isWorthRepeating: true };
        }
        return { why: 'it has no such model or path', outcome: 'missing', error, isFinal: true };
      case 429:
        return { why: 'its queue is full', outcome: 'failed', error, isFinal: true };
      default:
        this.fleet.refuses(replica, `it gives ${status}`);
        this.fleet.suspect(replica, `it gives ${status}`, false);
        return { why: `it gives ${status}`, outcome: 'failed', error, ...defined({ waitMs }) };
    }
  }

  private requestOf({ facts, body, path }: Asked, except: ReadonlySet<string>): RouteRequest | ApiError {
    const model = facts?.model;
    const tokens = Math.ceil((facts?.promptBytes ?? 0) / BYTES_OF_TOKEN);
    const common = {
      tokens,
      except,
      ...defined({ newTokens: facts?.maxTokens }),
      ...(facts === undefined || facts.prefix.length === 0
        ? {}
        : {
            prefix: createHash('sha256')
              .update(`${model ?? ''}\0`)
              .update(facts.prefix)
              .digest('base64url')
              .slice(0, 22),
            prefixTokens: Math.ceil(facts.prefix.length / BYTES_OF_TOKEN),
          }),
    };
    const isRead = body !== undefined && model !== undefined;
    const own = isRead ? this.book.configOf(model) : undefined;
    if (own !== undefined) {
      if (this.placement.isAnnounced(own.name)) return { ...common, base: own.base, adapter: own.name };
      const problem = this.book.problemOf(own.name);
      return new ApiError(503, `The adapter is not there${problem === undefined ? ' yet' : ''}.`, {
        ...{ code: 'adapter_unavailable', param: 'model', retryAfter: 5 },
      });
    }
    if (this.fleet.ready.length === 0) return this.errorOf('no replica');
    // Whoever names no model gets the only one, or the one that the endpoint is for.
    const among = isRead ? this.fleet.listed(model) : this.fleet.ready;
    const base = among.find((replica) => replica.takesRequests)?.base ?? among[0]?.base;
    if (base === undefined) return this.errorOf('no such model', { path });
    return { ...common, base, among: new Set(among.filter((each) => each.base === base).map(({ id }) => id)) };
  }

  private errorOf(why: string, _asked?: Partial<Asked>): ApiError {
    switch (why) {
      case 'no such adapter':
      case 'no such model':
        return new ApiError(404, 'There is no such model. GET /v1/models lists them.', {
          ...{ code: 'model_not_found', param: 'model' },
        });
      case 'full':
        return new ApiError(429, 'Too much waits already. Try again later.', { code: 'queue_full', retryAfter: 1 });
      default:
        return new ApiError(503, 'No server can take the request now.', { code: 'no_replica', retryAfter: 5 });
    }
  }

  /** Until something has changed, or some time has gone. False: there is no more time. */
  private async wait(asked: Asked, until: number, waitMs = LEAST_WAIT_MS * 10): Promise<boolean> {
    const left = until - this.now();
    if (left <= 0 || this.waiting >= this.config.limits.waiting) return false;
    this.waiting++;
    let timer: NodeJS.Timeout | undefined;
    const pause = Math.min(left, MOST_WAIT_MS, Math.max(LEAST_WAIT_MS, waitMs));
    try {
      const time = new Promise<void>((resolve) => (timer = setTimeout(resolve, pause)));
      await Promise.race([this.fleet.changed(), time, asked.gone]);
      return true;
    } finally {
      clearTimeout(timer);
      this.waiting--;
    }
  }

  private giveUp(last: Miss | undefined, error: ApiError | undefined, to: ServerResponse, attempts: number): Told {
    const told = last?.error ?? error;
    if (told === undefined || told instanceof ApiError) throw told ?? this.errorOf('no replica');
    if (to.headersSent) throw new TornAnswer(messageOf(told.body) ?? 'No server can take the request now.', true);
    const { headers, statusCode = 503 } = told.response;
    const kept = ['content-type', 'retry-after', 'x-should-retry'].flatMap((name) => {
      const value = headers[name];
      return value === undefined ? [] : [[name, value] as const];
    });
    to.writeHead(statusCode, { ...Object.fromEntries(kept), 'content-length': told.body.length }).end(told.body);
    return { outcome: 'refused', replica: undefined, attempts };
  }

  private byReplica(id: string): Map<string, number> {
    let counts = this.counts.byReplica.get(id);
    if (counts === undefined) this.counts.byReplica.set(id, (counts = new Map()));
    return counts;
  }
}

/** A part of an answer was sent. `canTell`: an event may still follow it. */
export class TornAnswer extends Error {
  readonly canTell: boolean;

  constructor(message: string, canTell: boolean) {
    super(message);
    this.canTell = canTell;
  }
}

const miss = (why: string, outcome: Outcome, status = 503): Miss => ({
  why,
  outcome,
  error: new ApiError(
    status,
    status === 429 ? 'Too much waits already. Try again later.' : `No server has answered: ${why}.`,
    { code: status === 429 ? 'queue_full' : 'no_replica', retryAfter: 1 },
  ),
});

const add = (counts: Map<string, number>, key: string): void => void counts.set(key, (counts.get(key) ?? 0) + 1);

function retryAfterMs({ headers }: IncomingMessage): number | undefined {
  const text = headers['retry-after'];
  return text !== undefined && /^\d{1,6}$/.test(text) ? 1000 * Number(text) : undefined;
}

function messageOf(body: Buffer): string | undefined {
  try {
    const value: unknown = JSON.parse(body.toString());
    const error = isRecord(value) ? value['error'] : undefined;
    return isRecord(error) && typeof error['message'] === 'string' ? error['message'].slice(0, 500) : undefined;
  } catch {
    return undefined;
  }
}
