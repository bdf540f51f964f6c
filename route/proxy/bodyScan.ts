/**
 * What a router wants to know of a body: which model, how much work, how the prompt begins. Only the fields of the
 * outer object are looked at, in one pass over the bytes; what is inside them is for the replica, which refuses what is
 * no JSON. The body itself is sent on as it came, but for the name of the model.
 */

export interface BodyFacts {
  /** Undefined where the body names none, or no text. */
  readonly model?: string;
  /** Bytes of the value of `model`, quotes included: from, to. */
  readonly modelAt?: readonly [from: number, to: number];
  readonly isStream: boolean;
  /** Bytes of what is to be read: prompts, messages, texts. */
  readonly promptBytes: number;
  /** The prompt's first bytes as they are written, at most PREFIX_BYTES; empty where there is no prompt. */
  readonly prefix: Buffer;
  /** Most tokens that may be written, all choices together. Undefined where the body does not say. */
  readonly maxTokens?: number;
}

/** Prompts that begin with so many equal bytes go to one replica, which may have their pages. */
export const PREFIX_BYTES = 2048;

const PROMPTS = new Set(['prompt', 'messages', 'input', 'question', 'steps', 'text_1', 'text_2', 'query', 'documents']);
/** Behind one of these, others say little of which pages are there. */
const PREFIXES = ['messages', 'prompt', 'input', 'question', 'text_1', 'query'] as const;
/** Longer names are none of ours. */
const MAX_KEY_BYTES = 256;
const MAX_MODEL_BYTES = 4096;

const [QUOTE, BACKSLASH, COLON, COMMA] = [0x22, 0x5c, 0x3a, 0x2c];
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];

const isSpace = (byte: number | undefined): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Undefined where the bytes are no JSON object. Of one that is not valid further inside it says anything. */
export function scanBody(bytes: Buffer): BodyFacts | undefined {
  const spans = spansOf(bytes);
  if (spans === undefined) return undefined;
  const modelAt = spans.get('model');
  const model = modelAt === undefined || modelAt[1] - modelAt[0] > MAX_MODEL_BYTES ? undefined : value(bytes, modelAt);
  let promptBytes = 0;
  for (const [key, [from, to]] of spans) if (PROMPTS.has(key)) promptBytes += to - from;
  const first = PREFIXES.map((key) => spans.get(key)).find((span) => span !== undefined);
  const choices = Math.max(1, numberAt(bytes, spans, 'n') ?? 1, numberAt(bytes, spans, 'best_of') ?? 1);
  const most = numberAt(bytes, spans, 'max_completion_tokens') ?? numberAt(bytes, spans, 'max_tokens');
  return {
    ...(typeof model === 'string' && modelAt !== undefined ? { model, modelAt } : {}),
    isStream: wordAt(bytes, spans, 'stream') === 'true',
    promptBytes,
    prefix:
      first === undefined ? Buffer.alloc(0) : bytes.subarray(first[0], Math.min(first[1], first[0] + PREFIX_BYTES)),
    ...(most === undefined ? {} : { maxTokens: most * choices }),
  };
}

/** The body with another name of a model. */
export function withModel(bytes: Buffer, { modelAt }: BodyFacts, model: string): Buffer {
  if (modelAt === undefined) return bytes;
  return Buffer.concat([bytes.subarray(0, modelAt[0]), Buffer.from(JSON.stringify(model)), bytes.subarray(modelAt[1])]);
}

type Span = readonly [from: number, to: number];

/** Values of the outer object by key. Of a key that is there twice, the last one counts, as for JSON.parse. */
function spansOf(bytes: Buffer): Map<string, Span> | undefined {
  const found = new Map<string, Span>();
  let at = skipSpace(bytes, 0);
  if (bytes[at] !== OPEN) return undefined;
  at = skipSpace(bytes, at + 1);
  if (bytes[at] === CLOSE) return isEnd(bytes, at + 1) ? found : undefined;
  for (;;) {
    if (bytes[at] !== QUOTE) return undefined;
    const endOfKey = endOfString(bytes, at);
    if (endOfKey > bytes.length) return undefined;
    const key = endOfKey - at <= MAX_KEY_BYTES ? value(bytes, [at, endOfKey]) : undefined;
    at = skipSpace(bytes, endOfKey);
    if (bytes[at] !== COLON) return undefined;
    at = skipSpace(bytes, at + 1);
    const end = endOfValue(bytes, at);
    if (end <= at || end > bytes.length) return undefined;
    if (typeof key === 'string') found.set(key, [at, end]);
    at = skipSpace(bytes, end);
    if (bytes[at] === CLOSE) return isEnd(bytes, at + 1) ? found : undefined;
    if (bytes[at] !== COMMA) return undefined;
    at = skipSpace(bytes, at + 1);
  }
}

function skipSpace(bytes: Buffer, at: number): number {
  while (isSpace(bytes[at])) at++;
  return at;
}

const isEnd = (bytes: Buffer, at: number): boolean => skipSpace(bytes, at) === bytes.length;

/** Behind the closing quote of a string; beyond the bytes where it does not end. */
function endOfString(bytes: Buffer, from: number): number {
  for (let at = from + 1; ; at++) {
    // A backslash before the quote may itself be escaped: those before it decide.
    at = bytes.indexOf(QUOTE, at);
    if (at < 0) return bytes.length + 1;
    let slashes = 0;
    while (bytes[at - 1 - slashes] === BACKSLASH) slashes++;
    if (slashes % 2 === 0) return at + 1;
  }
}

function endOfValue(bytes: Buffer, from: number): number {
  const first = bytes[from];
  if (first === QUOTE) return endOfString(bytes, from);
  if (first === OPEN || first === OPEN_LIST) return endOfContainer(bytes, from);
  let at = from;
  for (; at < bytes.length; at++) {
    const byte = bytes[at]!;
    if (byte === COMMA || byte === CLOSE || isSpace(byte)) break;
  }
  return at;
}

function endOfContainer(bytes: Buffer, from: number): number {
  let depth = 0;
  for (let at = from; at < bytes.length; at++) {
    const byte = bytes[at]!;
    if (byte === QUOTE) at = endOfString(bytes, at) - 1;
    else if (byte === OPEN || byte === OPEN_LIST) depth++;
    else if ((byte === CLOSE || byte === CLOSE_LIST) && --depth === 0) return at + 1;
  }
  return bytes.length + 1;
}

/** A small value, parsed; undefined where it is none. */
function value(bytes: Buffer, [from, to]: Span): unknown {
  try {
    return JSON.parse(bytes.toString('utf8', from, to)) as unknown;
  } catch {
    return undefined;
  }
}

/** A value without quotes and brackets, as it is written. */
function wordAt(bytes: Buffer, spans: ReadonlyMap<string, Span>, key: string): string | undefined {
  const span = spans.get(key);
  return span === undefined || span[1] - span[0] > 32 ? undefined : bytes.toString('latin1', span[0], span[1]);
}

const MAX_COUNT = 1e9;

function numberAt(bytes: Buffer, spans: ReadonlyMap<string, Span>, key: string): number | undefined {
  const text = wordAt(bytes, spans, key);
  const number = text === undefined || !/^\d/.test(text) ? NaN : Number(text);
  return number >= 0 && number <= MAX_COUNT ? number : undefined;
}
