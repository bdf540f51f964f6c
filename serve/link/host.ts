/**
 * The engine's side of the link. It submits what comes through a port, gathers the events of a step, and posts one
 * message with all of them once the next step was sent: the loop of the device waits for nothing here.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Engine } from '../../engine/engine.js';
import { predicting, Prediction } from '../../draft/prediction.js';
import type { TokenGuide } from '../../engine/guide.js';
import type { RequestHandle } from '../../engine/handle.js';
import type { GrammarSource } from '../../grammar/source.js';
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import type { AdapterSource } from '../adapters/names.js';
import { TapeWriter } from './eventTape.js';
import { sentError } from './failures.js';
import { engineRequestOf, type FromEngine, type SentRequest, type ToEngine } from './protocol.js';

/** A port of either kind of thread. */
export type LinkPort = Pick<MessagePort, 'postMessage' | 'on' | 'off'>;

/** Who knows which texts a grammar allows. */
export interface Guides {
  /** Rejects with ApiError 400 where there is no such grammar, or it is beyond bounds. */
  check(model: string, source: GrammarSource): Promise<void>;
  /** The guide of a request's tokens. What is wrong is told by the guide. */
  guideOf(model: string, source: GrammarSource): TokenGuide;
}

interface Running {
  readonly request: number;
  readonly handle: RequestHandle;
  /** By sequence: whether it has ended. One that was cut may end twice. */
  readonly hasEnded: boolean[];
  left: number;
  isWaiting: boolean;
}

export class EngineHost {
  private readonly engine: Engine;
  private readonly port: LinkPort;
  private readonly guides: Guides | undefined;
  private readonly adapters: AdapterSource | undefined;
  private readonly running = new Map<number, Running>();
  /** Requests with events. */
  private dirty: Running[] = [];
  private readonly tape = new TapeWriter();
  private readonly onMessage = (message: ToEngine): void => this.take(message);
  private readonly flush = (): void => this.post();

  constructor(engine: Engine, port: LinkPort, guides?: Guides, adapters?: AdapterSource) {
    this.adapters = adapters;
    this.engine = engine;
    this.port = port;
    this.guides = guides;
    port.on('message', this.onMessage);
  }

  /** Requests in work. */
  get size(): number {
    return this.running.size;
  }

  /** Nothing is taken from the port any more; what is in work ends. */
  close(): void {
    this.port.off('message', this.onMessage);
    for (const { handle } of this.running.values()) handle.cancel();
    this.running.clear();
    this.dirty = [];
  }

  private take(message: ToEngine): void {
    switch (message.kind) {
      case 'submit':
        return this.submit(message.request, message.asked);
      case 'cancel':
        this.running.get(message.request)?.handle.cancel();
        return;
      case 'cut':
        this.running.get(message.request)?.handle.cut(message.sample, message.count, 'stop');
        return;
      case 'acknowledge':
        for (let i = 0; i < message.counts.length; i += 2)
          this.running.get(message.counts[i]!)?.handle.acknowledge(message.counts[i + 1]!);
        return;
      case 'stats':
        return this.answer(message.question, () => ({
          kind: 'stats',
          question: message.question,
          stats: message.models.map((model) => this.engine.statsOf(model)),
        }));
      case 'progress':
        return this.answer(message.question, () => ({
          kind: 'progress',
          question: message.question,
          progress: this.engine.progress,
        }));
      case 'openAdapter':
        void this.tell(message.question, async (adapters) => ({
          ...{ kind: 'adapter', question: message.question, facts: await adapters.open(message.path) },
        }));
        return;
      case 'releaseAdapter':
        void this.tell(message.question, async (adapters) => {
          await adapters.release(message.hash);
          return { kind: 'released', question: message.question };
        });
        return;
      case 'check':
        void this.check(message.question, message.model, message.source);
        return;
      default:
        return message satisfies never;
    }
  }

  private submit(request: number, asked: SentRequest): void {
    const running: { -readonly [K in keyof Running]?: Running[K] } = {};
    try {
      const handle = this.engine.submit(this.requestOf(asked), () => this.mark(running as Running));
      const left = asked.kind === 'generate' ? (asked.n ?? 1) : 1;
      Object.assign(running, { request, handle, left, hasEnded: [], isWaiting: running.isWaiting ?? false });
      this.running.set(request, running as Running);
    } catch (error) {
      this.send({ kind: 'refused', request, error: sentError(error) });
    }
  }

  private requestOf(asked: SentRequest) {
    const request = engineRequestOf(asked);
    if (request.kind !== 'generate' || asked.kind !== 'generate') return request;
    const { grammar, prediction } = asked;
    const model = this.engine.nameOf('submit', request.model);
    if (grammar !== undefined && this.guides === undefined) throw new Error('There is nobody who knows grammars.');
    const drafts = prediction && this.engine.draftsOf(model);
    return {
      ...request,
      ...defined({
        guide: grammar && this.guides?.guideOf(model, grammar),
        drafts: drafts && predicting(new Prediction(prediction), drafts.drafter),
      }),
    };
  }

  /** An event is held for this request. */
  private mark(running: Running): void {
    if (running.isWaiting) return;
    running.isWaiting = true;
    // The loop sends its next step before anything that is due now.
    if (this.dirty.push(running) === 1) setImmediate(this.flush);
  }

  private post(): void {
    const { dirty } = this;
    this.dirty = [];
    for (const running of dirty) {
      running.isWaiting = false;
      const events = running.handle.take();
      if (events.length === 0) continue;
      this.tape.add(running.request, events);
      for (const { kind, sample } of events) {
        if ((kind !== 'end' && kind !== 'failed') || running.hasEnded[sample] === true) continue;
        running.hasEnded[sample] = true;
        running.left--;
      }
      if (running.left <= 0) this.running.delete(running.request);
    }
    if (this.tape.isEmpty) return;
    const tape = this.tape.take();
    this.send({ kind: 'events', tape }, [tape.ints.buffer as ArrayBuffer, tape.floats.buffer as ArrayBuffer]);
  }

  private answer(question: number, ask: () => FromEngine): void {
    try {
      this.send(ask());
    } catch (error) {
      this.send({ kind: 'failed', question, error: sentError(error) });
    }
  }

  private async check(question: number, model: string, source: GrammarSource): Promise<void> {
    try {
      if (this.guides === undefined) throw new Error('There is nobody who knows grammars.');
      await this.guides.check(model, source);
      this.send({ kind: 'checked', question });
    } catch (error) {
      this.send({ kind: 'failed', question, error: sentError(error) });
    }
  }

  private async tell(question: number, ask: (adapters: AdapterSource) => Promise<FromEngine>): Promise<void> {
    try {
      if (this.adapters === undefined) throw new Error('The model has no slots for adapters.');
      this.send(await ask(this.adapters));
    } catch (error) {
      const sent = sentError(error);
      // Whoever has a folder read can do what a hint says.
      const hint = error instanceof UserError && error.hint !== undefined ? ` (${error.hint})` : '';
      this.send({ kind: 'failed', question, error: { ...sent, message: `${sent.message}${hint}` } });
    }
  }

  private send(message: FromEngine, transfer: readonly ArrayBuffer[] = []): void {
    this.port.postMessage(message, transfer);
  }
}
