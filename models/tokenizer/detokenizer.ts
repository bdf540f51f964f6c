/**
 * The text of tokens, without the tokenizer library: a table from token ids to pieces or bytes, which fills as tokens
 * occur, and the stages of the decoder that depend on what comes before. No call waits for anything.
 */
import { isUtf8 } from 'node:buffer';
import { ByteLevel, byteOfPiece, bytesOfLetters } from './byteStages.js';
import { type Decoder, isOfPiece, spacesBefore, stagesOf } from './decoders.js';
import { type Stage, TextSink } from './pieceStages.js';

export interface DetokenizerParts {
  /** The piece of a token; undefined where there is no such token. */
  readonly pieceOf: (id: number) => string | undefined;
  readonly decoders: readonly Decoder[];
  /** Pieces that texts leave out. */
  readonly special: ReadonlySet<string>;
  /** Pieces that were added to the vocabulary whole, special ones among them. */
  readonly added: ReadonlySet<string>;
}

/** What a token is in a text. */
interface Entry {
  readonly piece: string;
  /** What becomes of the piece by itself, behind others; undefined for bytes that are no text by themselves. */
  readonly text: string | undefined;
  /** Of a tokenizer whose pieces are bytes. */
  readonly bytes?: Uint8Array;
}

/** Ids above this are of no tokenizer that can be read. */
const MAX_TABLE = 1 << 23;
const NO_BYTES = new Uint8Array(0);
const NONE: ReadonlySet<string> = new Set();

/** Special tokens, by how they are written, that are part of a text. */
export type ShownTokens = ReadonlySet<string> | 'all';

const isId = (id: number): boolean => Number.isInteger(id) && id >= 0 && id <= MAX_TABLE;

export class Detokenizer {
  readonly #parts: DetokenizerParts;
  /** Decoders whose result for a piece is in the table, and those behind them. */
  readonly #ofPiece: readonly Decoder[];
  readonly #later: readonly Decoder[];
  /** Null for tokens without text. */
  readonly #table: (Entry | null | undefined)[] = [];
  readonly #first = new Map<number, string>();
  readonly #middle: { readonly stage: Stage; readonly sink: TextSink };

  constructor(parts: DetokenizerParts) {
    this.#parts = parts;
    const { decoders } = parts;
    const at = decoders.findIndex((each) => !isOfPiece(each));
    this.#ofPiece = at < 0 ? decoders : decoders.slice(0, at);
    this.#later = at < 0 ? [] : decoders.slice(at);
    this.#middle = this.#pieceStages();
    give(this.#middle.stage, '');
    this.#middle.sink.take();
  }

  /**
   * The text of tokens whose number grows. It is what `decode` gives for all of them, with one exception: characters
   * that pieces for single bytes have completed stand, even if the run of such pieces turns out to be no UTF-8.
   * `shown`: special tokens that are part of the text as they are written.
   */
  stream(shown: ShownTokens = NONE): TokenStream {
    return this.#open(true, shown);
  }

  /** The text of a list of tokens, to the letter what the tokenizer library gives for it. */
  decode(ids: Iterable<number>): string {
    const text = this.#open(false, NONE);
    let all = '';
    for (const id of ids) all += text.push(id);
    return all + text.end();
  }

  /** The bytes that a token adds in the middle of a text: none for special tokens, and for those that do not exist. */
  bytesOf(id: number): Uint8Array {
    const entry = this.#entry(id);
    if (entry === null) return NO_BYTES;
    if (entry.bytes !== undefined) return entry.bytes;
    const byte = this.#later.some(({ type }) => type === 'ByteFallback') ? byteOfPiece(entry.text ?? '') : undefined;
    return byte === undefined ? Buffer.from(this.#between(entry.piece)) : Uint8Array.of(byte);
  }

  /** How a special token is written; undefined for any other. */
  specialText(id: number): string | undefined {
    const piece = isId(id) ? this.#parts.pieceOf(id) : undefined;
    return piece !== undefined && this.#parts.special.has(piece) ? piece : undefined;
  }

  /** Whether a token was added to the vocabulary whole. */
  isWhole(id: number): boolean {
    const piece = this.#entry(id)?.piece ?? this.specialText(id);
    return piece !== undefined && this.#parts.added.has(piece);
  }

  #open(isStreamed: boolean, shown: ShownTokens): TokenStream {
    const sink = new TextSink();
    const isPlaced = this.#ofPiece.length > 0 || this.#parts.decoders.length === 0;
    const entryOf = (id: number): Entry | null => this.#table[id] ?? this.#find(id);
    return new TokenStream(
      {
        entryOf: shown !== 'all' && shown.size === 0 ? entryOf : (id) => entryOf(id) ?? this.#shownSpecial(id, shown),
        firstTextOf: isPlaced ? (id, piece) => this.#firstText(id, piece) : undefined,
        isWhole: (id) => this.isWhole(id),
      },
      stagesOf(this.#later, isStreamed, sink),
      sink,
    );
  }

  #pieceStages(): { readonly stage: Stage; readonly sink: TextSink } {
    const sink = new TextSink();
    const hasNone = this.#parts.decoders.length === 0;
    return { sink, stage: hasNone ? spacesBefore(sink) : stagesOf(this.#ofPiece, true, sink) };
  }

  #entry(id: number): Entry | null {
    return this.#table[id] ?? this.#find(id);
  }

  #shownSpecial(id: number, shown: ShownTokens): Entry | null {
    const piece = this.specialText(id);
    return piece !== undefined && (shown === 'all' || shown.has(piece)) ? this.#entryOf(piece) : null;
  }

  #find(id: number): Entry | null {
    if (!isId(id)) return null;
    const piece = this.#parts.pieceOf(id);
    return (this.#table[id] = piece === undefined || this.#parts.special.has(piece) ? null : this.#entryOf(piece));
  }

  #entryOf(piece: string): Entry {
    const { stage, sink } = this.#middle;
    give(stage, piece);
    const text = sink.take();
    if (this.#later[0]?.type !== 'ByteLevel') return { piece, text };
    const bytes = bytesOfLetters(text);
    return { piece, bytes, text: isUtf8(bytes) ? Buffer.from(bytes).toString() : undefined };
  }

  /** What becomes of a piece with which a text begins. */
  #firstText(id: number, piece: string): string {
    let text = this.#first.get(id);
    if (text === undefined) {
      const { stage, sink } = this.#pieceStages();
      give(stage, piece);
      this.#first.set(id, (text = sink.take()));
    }
    return text;
  }

  /** The text that a piece adds between two others. */
  #between(piece: string): string {
    const render = (pieces: readonly string[]): string => {
      const sink = new TextSink();
      const { decoders } = this.#parts;
      const stage = decoders.length === 0 ? spacesBefore(sink) : stagesOf(decoders, true, sink);
      for (const each of pieces) give(stage, each);
      stage.end();
      return sink.take();
    };
    const around = render(['a', 'a']).length;
    const all = render(['a', piece, 'a']);
    return all.slice(1, all.length - around + 1);
  }
}

/** What a stream asks of the table. */
interface Table {
  entryOf(id: number): Entry | null;
  /** What becomes of a piece with which a text begins; absent where that is nothing else. */
  readonly firstTextOf: ((id: number, piece: string) => string) | undefined;
  isWhole(id: number): boolean;
}

/** The text of a list of tokens that grows. */
export class TokenStream {
  readonly #table: Table;
  readonly #stage: Stage;
  readonly #sink: TextSink;
  #isFirst: boolean;

  constructor(table: Table, stage: Stage, sink: TextSink) {
    this.#table = table;
    this.#stage = stage;
    this.#sink = sink;
    this.#isFirst = table.firstTextOf !== undefined;
  }

  /** The text that a token adds: characters that it completes, and U+FFFD for bytes that are none. */
  push(id: number): string {
    const entry = this.#table.entryOf(id);
    if (entry === null) return '';
    const stage = this.#stage;
    if (this.#isFirst) give(stage, this.#table.firstTextOf?.(id, entry.piece) ?? '');
    else if (entry.bytes === undefined || !(stage instanceof ByteLevel)) give(stage, entry.text ?? '');
    else if (entry.text === undefined) stage.takeBytes(entry.bytes);
    else stage.takeText(entry.text);
    this.#isFirst = false;
    return this.#sink.take();
  }

  /** No token follows: the text that was not complete. */
  end(): string {
    this.#stage.end();
    return this.#sink.take();
  }

  /** Whether the text of a token is never shown in parts: it was added to the vocabulary whole. */
  isWhole(id: number): boolean {
    return this.#table.isWhole(id);
  }
}

function give(stage: Stage, piece: string): void {
  stage.open();
  stage.part(piece);
  stage.close();
}
