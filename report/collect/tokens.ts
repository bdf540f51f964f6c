/**
 * Blocks of tokens from tokens_*.jsonl, the file beside a run's samples (evaluate/tokenLines.ts). The file is
 * untrusted: what is no line of tokens is left out, and noted.
 */
import { closeSync, existsSync, openSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import type { TokenLine } from '../../evaluate/tokenLines.js';
import { FileLines } from '../../system/lines.js';
import { readRange } from '../../system/read.js';
import {
  type ChoiceTokens,
  type QuestionText,
  type QuestionTokens,
  type TokenBlock,
  tokensBlock,
} from '../document/questions.js';
import type { Block } from '../document/sections.js';
import type { LoadedRun } from './loadRuns.js';
import type { Row } from './questions.js';

const MAX_LINE_BYTES = 16 << 20;
const MAX_TOKENS = 1 << 20;
const MAX_CHOICES = 200;
const MAX_QUESTIONS = 2_000_000;
/** Tokens that a page holds in all: later questions have none. */
const MAX_PAGE_TOKENS = 20_000_000;
const AGAIN = 'Write it again: run --log-tokens';

const count = z.int().min(0);
const LINE: z.ZodType<TokenLine> = z.object({
  doc_id: count,
  shared_tokens: count,
  choices: z
    .array(
      z.object({
        omitted_tokens: count,
        tokens: z.array(count).max(MAX_TOKENS),
        texts: z
          .array(
            z
              .string()
              .max(1 << 16)
              .nullable(),
          )
          .max(MAX_TOKENS),
        logprobs: z.array(z.number()).max(MAX_TOKENS),
      }),
    )
    .max(MAX_CHOICES),
});

/** Where the line of each question lies. */
type Places = ReadonlyMap<number, { readonly offset: number; readonly length: number }>;

interface TokenFile {
  readonly path: string;
  readonly places: Places;
}

/** The file of tokens that belongs to a file of samples; undefined where there is none. */
function tokensBeside(samplesPath: string): string | undefined {
  const name = basename(samplesPath);
  if (!name.startsWith('samples_')) return undefined;
  const path = join(dirname(samplesPath), name.replace('samples_', 'tokens_'));
  return existsSync(path) ? path : undefined;
}

/** Numbers stand at the beginning of lines, so that a line is read as a whole only where it is shown. */
const DOC_ID = /^\{"doc_id":(\d{1,15}),/;

function placesOf(path: string, notes: string[]): Places {
  const places = new Map<number, { offset: number; length: number }>();
  const lines = new FileLines(path, { maxLineBytes: MAX_LINE_BYTES, hint: AGAIN });
  let strange = 0;
  try {
    for (let line = lines.next(); line !== undefined && places.size < MAX_QUESTIONS; line = lines.next()) {
      const [, docId] = DOC_ID.exec(line.bytes.toString('utf8', 0, 40)) ?? [];
      if (docId === undefined || !line.isEnded) strange += line.bytes.length > 0 ? 1 : 0;
      else places.set(Number(docId), { offset: line.offset, length: line.bytes.length });
    }
  } finally {
    lines.close();
  }
  if (strange > 0) notes.push(`${path}: ${strange} of its lines are no tokens of a question, and are left out`);
  return places;
}

function lineAt(fd: number, { places }: TokenFile, docId: number): TokenLine | undefined {
  const place = places.get(docId);
  if (place === undefined) return undefined;
  try {
    const parsed = LINE.safeParse(JSON.parse(readRange(fd, place.offset, place.length).toString('utf8')));
    if (!parsed.success) return undefined;
    const isWhole = parsed.data.choices.every(
      ({ tokens, texts, logprobs }) => texts.length === tokens.length && logprobs.length <= tokens.length,
    );
    return isWhole ? parsed.data : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Two digits behind the point; -0 is 0. */
const rounded = (logProb: number): number => Math.round(logProb * 100) / 100 + 0;

function choiceOf({ omitted_tokens, texts, logprobs }: TokenLine['choices'][number], shown: string): ChoiceTokens {
  const shared = { omitted: omitted_tokens, logProbs: logprobs.map(rounded) };
  const isShown = texts.every((text) => text !== null && text !== '') && texts.join('') === shown;
  return isShown ? { ...shared, lengths: texts.map((text) => text!.length) } : { ...shared, texts };
}

/** `text`: the question as the page shows it. */
function questionTokens(line: TokenLine, text: Pick<QuestionText, 'choices'> | undefined): QuestionTokens {
  const choices = line.choices.slice(
    0,
    text === undefined || text.choices.length === 0 ? undefined : text.choices.length,
  );
  return {
    shared: line.shared_tokens,
    choices: choices.map((choice, i) => choiceOf(choice, text?.choices[i] ?? '')),
  };
}

/** Files of a run, by task, and their numbers by path; and how many more tokens the page takes. */
interface OpenFiles {
  readonly files: ReadonlyMap<string, TokenFile>;
  readonly open: ReadonlyMap<string, number>;
  readonly room: { tokens: number };
}

/** Files of tokens of all runs, by run and task. */
export class TokenFiles {
  readonly notes: string[] = [];
  readonly #files: readonly ReadonlyMap<string, TokenFile>[];

  /** The files. */
  get paths(): readonly string[] {
    return this.#files.flatMap((files) => [...files.values()].map(({ path }) => path));
  }

  constructor(runs: readonly LoadedRun[]) {
    this.#files = runs.map(
      ({ tasks }) =>
        new Map(
          [...tasks].flatMap(([task, { set }]) => {
            const path = tokensBeside(set.path);
            return path === undefined ? [] : [[task, { path, places: placesOf(path, this.notes) }] as const];
          }),
        ),
    );
  }

  /** `starts`: first rows of the blocks of texts. */
  *blocks(
    rows: readonly Row[],
    starts: readonly number[],
    textOf: (row: Row) => Pick<QuestionText, 'choices'> | undefined,
  ): Generator<Block> {
    const room = { tokens: MAX_PAGE_TOKENS };
    for (const [run, files] of this.#files.entries()) {
      if (files.size === 0) continue;
      const open = new Map([...files.values()].map(({ path }) => [path, openSync(path, 'r')]));
      try {
        yield* this.#blocksOf(run, { files, open, room }, rows, starts, textOf);
      } finally {
        for (const fd of open.values()) closeSync(fd);
      }
    }
  }

  *#blocksOf(
    run: number,
    { files, open, room }: OpenFiles,
    rows: readonly Row[],
    starts: readonly number[],
    textOf: (row: Row) => Pick<QuestionText, 'choices'> | undefined,
  ): Generator<Block> {
    for (let block = 0; block < starts.length; block++) {
      const content: TokenBlock = rows.slice(starts[block], starts[block + 1]).map((row) => {
        const file = files.get(row.task);
        const answered = row.answered[run];
        const line =
          file === undefined || answered === undefined ? undefined : lineAt(open.get(file.path)!, file, answered.docId);
        if (line === undefined) return null;
        room.tokens -= line.choices.reduce((sum, { tokens }) => sum + tokens.length, 0);
        return room.tokens < 0 ? null : questionTokens(line, textOf(row));
      });
      if (content.some((each) => each !== null)) yield { name: tokensBlock(run, block), content };
    }
  }
}
