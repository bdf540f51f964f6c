/**
 * What the thread that follows grammars does: compiles grammars, and finds the masks of texts. What costs least, and
 * has waited longest, comes first; so a grammar that is hard to follow holds up little but its own texts.
 */
import { getHeapStatistics } from 'node:v8';
import { GrammarError } from '../../grammar/grammar.js';
import type { GrammarSource } from '../../grammar/source.js';
import { compile, type CompiledGrammar, type MatchState } from '../../grammar/tokens/compile.js';
import { Vocabulary } from '../../grammar/tokens/vocabulary.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import type {
  FromGrammars,
  GrammarLook,
  GrammarLooked,
  GrammarModel,
  GrammarProblem,
  ToGrammars,
} from './grammarMessages.js';

/** Grammars that are kept although nobody uses them. */
const KEPT_GRAMMARS = 64;
/** Masks that the other side keeps: 16 MB at 128,000 tokens. */
const SENT_MASKS = 1024;
/** Share of the heap past which grammars that nobody uses go, and no others are compiled. */
const FULL = 0.7;
/** How often the heap is looked at, in things done. */
const LOOK_EVERY = 256;
/** Milliseconds that a grammar which was never used is thought to cost. */
const FIRST_COST = 30;
const COST_DECAY = 0.8;

interface Known {
  readonly key: string;
  readonly model: string;
  readonly source: GrammarSource;
  grammar: CompiledGrammar | undefined;
  uses: number;
  /** Milliseconds of its latest masks, about. */
  cost: number;
}

interface Following {
  readonly of: Known;
  match: MatchState | undefined;
}

interface Job {
  /** Of a question or a state. */
  readonly number: number;
  readonly of: Known;
  readonly tokens: ArrayLike<number>;
  readonly isCheck: boolean;
  readonly since: number;
  /** Drafts behind the tokens of a state. */
  readonly look?: GrammarLook;
}

/** The vocabulary of a model as grammars see it. Throws UserError where files are damaged. */
export function grammarVocabulary({ tokenizer, vocabSize, eosTokenIds }: GrammarModel): Vocabulary {
  const detokenizer = createTokenizer(tokenizer).detokenizer();
  const special = new Map<string, number>();
  const bytes = Array.from({ length: vocabSize }, (_, id) => {
    const text = detokenizer.specialText(id);
    if (text !== undefined) special.set(text, id);
    const own = detokenizer.bytesOf(id);
    return own.length === 0 ? undefined : own;
  });
  return new Vocabulary({ bytes, special, endTokens: eosTokenIds });
}

export class GrammarWork {
  private readonly vocabularies: ReadonlyMap<string, Vocabulary>;
  private readonly progress: Int32Array;
  private readonly known = new Map<string, Known>();
  private readonly states = new Map<number, Following>();
  private readonly jobs: Job[] = [];
  /** The masks that the other side has, by digests of their words; those that were used last come last. */
  private readonly sent = new Map<number, { readonly mask: Uint32Array; readonly number: number }>();
  private readonly digests = new WeakMap<Uint32Array, number>();
  private masks = 0;
  private done = 0;
  private answer = emptyAnswer();

  constructor(vocabularies: ReadonlyMap<string, Vocabulary>, progress: Int32Array) {
    this.vocabularies = vocabularies;
    this.progress = progress;
  }

  get isIdle(): boolean {
    return this.jobs.length === 0;
  }

  /** Texts that are followed, and grammars that are kept. */
  get counts(): { readonly states: number; readonly grammars: number } {
    return { states: this.states.size, grammars: this.known.size };
  }

  add({ check, begin, take, look, close }: ToGrammars): void {
    const since = performance.now();
    for (const { question, model, source } of check)
      this.jobs.push({ number: question, of: this.use(model, source), tokens: [], isCheck: true, since });
    for (const { state, model, source, tokens } of begin) {
      const of = this.use(model, source);
      this.states.set(state, { of, match: undefined });
      this.jobs.push({ number: state, of, tokens, isCheck: false, since });
    }
    for (const { state: number, tokens } of take) {
      const of = this.states.get(number)?.of;
      if (of !== undefined) this.jobs.push({ number, of, tokens, isCheck: false, since });
    }
    for (const each of look) {
      const of = this.states.get(each.state)?.of;
      if (of !== undefined)
        this.jobs.push({ number: each.question, of, tokens: each.taken, isCheck: false, since, look: each });
    }
    for (const state of close) this.close(state);
  }

  /** Does one thing. */
  next(): void {
    const at = this.first();
    const job = this.jobs[at];
    if (job === undefined) return;
    this.jobs[at] = this.jobs.at(-1)!;
    this.jobs.pop();
    const { number, of, tokens, isCheck, look } = job;
    const state = look?.state ?? number;
    const following = this.states.get(state);
    // A text may be over before its mask was found.
    if (!isCheck && following === undefined) return;
    if (++this.done % LOOK_EVERY === 0 && isFull()) this.forget(0);
    Atomics.store(this.progress, 0, number);
    const begun = performance.now();
    try {
      const grammar = this.grammarOf(of);
      if (isCheck) {
        // One whose texts cannot begin is found here, too.
        grammar.start().mask();
        this.answer.checked.push(number);
        this.release(of);
      } else {
        let match = following!.match ?? grammar.start();
        for (let i = 0; i < tokens.length; i++) match = match.take(tokens[i]!);
        following!.match = match;
        if (look === undefined) this.answer.masks.push(number, this.tell(match.mask()));
        else {
          const masks = match
            .ahead(look.tokens, look.parents)
            .map((mask) => (mask === undefined ? 0 : this.tell(mask)));
          this.answer.looked.push({ question: number, state, masks: Int32Array.from(masks) });
        }
      }
    } catch (error) {
      this.answer.failed.push([isCheck ? number : state, problemOf(error)]);
      if (isCheck) this.release(of);
      else this.close(state);
    }
    const masks = 1 + (look?.tokens.length ?? 0);
    of.cost = COST_DECAY * of.cost + ((1 - COST_DECAY) * (performance.now() - begun)) / masks;
    Atomics.store(this.progress, 0, 0);
    Atomics.add(this.progress, 1, 1);
  }

  /** Answers that were not taken yet; undefined where there are none. */
  take(): FromGrammars | undefined {
    const { masks, checked, failed, looked } = this.answer;
    if (masks.length + checked.length + failed.length + looked.length === 0) return undefined;
    const taken = { ...this.answer, masks: Int32Array.from(masks) };
    this.answer = emptyAnswer();
    return taken;
  }

  private first(): number {
    let [best, least] = [-1, Infinity];
    const now = performance.now();
    this.jobs.forEach(({ of: { cost }, since, look }, i) => {
      const rank = cost * (1 + (look?.tokens.length ?? 0)) - (now - since);
      if (rank < least) [best, least] = [i, rank];
    });
    return best;
  }

  private use(model: string, source: GrammarSource): Known {
    const key = `${model}\n${JSON.stringify(source)}`;
    const known = this.known.get(key) ?? { key, model, source, grammar: undefined, uses: 0, cost: FIRST_COST };
    this.known.delete(key);
    this.known.set(key, known);
    known.uses++;
    return known;
  }

  private release(of: Known): void {
    of.uses--;
    this.forget(KEPT_GRAMMARS);
  }

  /** The grammars that nobody uses, but for the last `kept`. */
  private forget(kept: number): void {
    let unused = 0;
    for (const { uses } of this.known.values()) if (uses === 0) unused++;
    for (const [key, { uses }] of this.known) {
      if (unused <= kept) return;
      if (uses > 0) continue;
      this.known.delete(key);
      unused--;
    }
  }

  private close(state: number): void {
    const following = this.states.get(state);
    if (following === undefined) return;
    this.states.delete(state);
    this.release(following.of);
  }

  private grammarOf(of: Known): CompiledGrammar {
    if (of.grammar !== undefined) return of.grammar;
    if (isFull()) {
      this.forget(0);
      if (isFull()) throw new Busy('too many grammars are in use: try again later');
    }
    const vocabulary = this.vocabularies.get(of.model);
    if (vocabulary === undefined) throw new Error(`there is no model ${of.model}`);
    return (of.grammar = compile(of.source, vocabulary));
  }

  /** The number of a mask, which the other side then has. */
  private tell(mask: Uint32Array): number {
    let digest = this.digests.get(mask);
    if (digest === undefined) this.digests.set(mask, (digest = digestOf(mask)));
    let sent = this.sent.get(digest);
    if (sent === undefined || !isEqual(sent.mask, mask)) {
      if (sent !== undefined) this.answer.dropped.push(sent.number);
      sent = { mask, number: ++this.masks };
      this.answer.fresh.push({ mask: sent.number, words: mask.slice() });
    }
    this.sent.delete(digest);
    this.sent.set(digest, sent);
    for (const [oldest, { number }] of this.sent) {
      if (this.sent.size <= SENT_MASKS) break;
      this.sent.delete(oldest);
      this.answer.dropped.push(number);
    }
    return sent.number;
  }
}

/** Equal masks of different states are one, which rows of a step share. */
function digestOf(mask: Uint32Array): number {
  let digest = 0;
  for (const word of mask) {
    digest = Math.imul(digest ^ word, 0x9e3779b1);
    digest ^= digest >>> 15;
  }
  return digest;
}

const isEqual = (one: Uint32Array, other: Uint32Array): boolean =>
  one === other || (one.length === other.length && one.every((word, at) => word === other[at]));

class Busy extends Error {}

function isFull(): boolean {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return used > FULL * limit;
}

function problemOf(error: unknown): GrammarProblem {
  if (error instanceof Busy) return { message: error.message, isBusy: true };
  if (!(error instanceof GrammarError)) return { message: 'following a grammar failed', isFault: true };
  const { where } = error;
  const message = error.message.replace(/\.$/, '');
  return { message: where === undefined || where === '' ? message : `${message} (at ${where})` };
}

const emptyAnswer = () => ({
  checked: [] as number[],
  failed: [] as (readonly [number, GrammarProblem])[],
  dropped: [] as number[],
  fresh: [] as { readonly mask: number; readonly words: Uint32Array }[],
  masks: [] as number[],
  looked: [] as GrammarLooked[],
});
