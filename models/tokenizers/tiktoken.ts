/**
 * tiktoken files as Meta and Alibaba publish them: a token a line, in base64, with its rank. They hold neither the
 * expression that cuts texts nor the special tokens: both are those of the model's own code, by release.
 */
import { UserError } from '../../errors.js';
import { writeByteLevel } from './byteLevel.js';
import { MAX_RANKS, Ranks } from './ranks.js';
import { LLAMA_3, LLAMA_4, QWEN, type ByteLevelRule } from './rules.js';

const USE_JSON = 'put the tokenizer.json of the model beside it: it is used if both exist';
const FIRST_LINE = /^[^\s]+ \d+\r?(?:\n|$)/;
/** In base64, with a rank behind it. */
const MAX_LINE = 1024;

/** Whether a file begins as tiktoken files do. A SentencePiece model begins with an end of line. */
export const isTiktoken = (bytes: Uint8Array): boolean =>
  FIRST_LINE.test(Buffer.from(bytes.subarray(0, MAX_LINE)).toString('latin1'));

/** What a checkpoint says beside such a file. */
export interface TiktokenFacts {
  /** Tokens that the model knows, special ones included. */
  readonly vocabSize?: number;
  /** Whether rotary frequencies are scaled as LLaMA 3.1 and later do it, which renamed special tokens. */
  readonly isScaled?: boolean;
}

interface Release {
  readonly name: string;
  readonly ranks: number;
  readonly rule: ByteLevelRule;
  /** In order of their ids, behind the ranks. */
  readonly special: readonly string[];
  readonly bos?: string;
}

const numbered = (name: string, from: number, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `<|${name}_${from + i}|>`);
const reserved = (from: number, count: number, name = ''): string[] =>
  numbered(`${name}reserved_special_token`, from, count);

/** 256 tokens: those with names of their own, by place, and `<|reserved_special_token_N|>` between and behind them. */
function llama3Special(names: Readonly<Record<number, string>>): readonly string[] {
  let next = 0;
  return Array.from({ length: 256 }, (_, i) => {
    const name = names[i];
    return name === undefined ? `<|reserved_special_token_${next++}|>` : `<|${name}|>`;
  });
}

const LLAMA_3_0 = llama3Special({
  0: 'begin_of_text',
  1: 'end_of_text',
  6: 'start_header_id',
  7: 'end_header_id',
  9: 'eot_id',
});
const LLAMA_3_1 = llama3Special({
  0: 'begin_of_text',
  1: 'end_of_text',
  4: 'finetune_right_pad_id',
  5: 'step_id',
  6: 'start_header_id',
  7: 'end_header_id',
  8: 'eom_id',
  9: 'eot_id',
  10: 'python_tag',
  11: 'image',
});
const LLAMA_4_SPECIAL = [
  ...['begin_of_text', 'end_of_text', 'fim_prefix', 'fim_middle', 'fim_suffix'].map((name) => `<|${name}|>`),
  ...['header_start', 'header_end', 'eom', 'eot', 'step'].map((name) => `<|${name}|>`),
  ...reserved(0, 6, 'text_post_train_'),
  ...['python_start', 'python_end', 'finetune_right_pad'].map((name) => `<|${name}|>`),
  ...reserved(8, 61, 'text_post_train_'),
  ...['image_start', 'image_end'].map((name) => `<|${name}|>`),
  ...reserved(0, 2, 'vision_'),
  ...['tile_x_separator', 'tile_y_separator'].map((name) => `<|${name}|>`),
  ...reserved(2, 4, 'vision_'),
  '<|image|>',
  ...reserved(6, 1, 'vision_'),
  '<|patch|>',
  ...reserved(7, 1041, 'vision_'),
  ...reserved(0, 8, 'reasoning_'),
  ...['reasoning_thinking_start', 'reasoning_thinking_end'].map((name) => `<|${name}|>`),
];

const RELEASES: readonly Release[] = [
  { name: 'Llama 3', ranks: 128_000, rule: LLAMA_3, special: LLAMA_3_1, bos: '<|begin_of_text|>' },
  {
    name: 'Llama 4',
    ranks: 200_000,
    rule: LLAMA_4,
    special: [...LLAMA_4_SPECIAL, ...reserved(0, 2048 - LLAMA_4_SPECIAL.length)],
    bos: '<|begin_of_text|>',
  },
  {
    name: 'Qwen',
    ranks: 151_643,
    rule: { ...QWEN, ignoresMerges: true },
    special: ['<|endoftext|>', '<|im_start|>', '<|im_end|>', ...numbered('extra', 0, 205)],
  },
];

/** By its number of ranks; else by the special tokens that a model has room for behind them. */
function releaseOf(ranks: number, { vocabSize }: TiktokenFacts): Release | undefined {
  return (
    RELEASES.find((release) => release.ranks === ranks) ??
    RELEASES.find(({ special }) => vocabSize !== undefined && vocabSize - ranks === special.length)
  );
}

function readRanks(bytes: Buffer, where: string): Ranks {
  const hint = 'download the file again, or put the tokenizer.json of the model beside it';
  const ranks = new Ranks(where, hint);
  const text = bytes.toString('latin1');
  for (let at = 0, line = 1; at < text.length; line++) {
    const end = text.indexOf('\n', at);
    const next = end === -1 ? text.length : end;
    const fail = (what: string): never => {
      throw new UserError(`${where}: line ${line}: ${what}`, hint);
    };
    if (next - at > MAX_LINE) fail(`${next - at} characters; the limit is ${MAX_LINE}`);
    const content = text.slice(at, next).trimEnd();
    at = next + 1;
    if (content === '') continue;
    const parts = /^(\S+) (\d{1,9})$/.exec(content);
    if (parts === null) return fail('expected a token in base64, a space and its rank');
    if (ranks.size >= MAX_RANKS) fail(`more than ${MAX_RANKS} tokens`);
    ranks.add(parts[1]!, Number(parts[2]), `line ${line}`);
  }
  return ranks;
}

/** The tokenizer.json (its text) that gives the tokens of a tiktoken file. Throws UserError. */
export function convertTiktoken(bytes: Buffer, where: string, facts: TiktokenFacts): string {
  const ranks = readRanks(bytes, where);
  const count = ranks.tokens().length;
  const release = releaseOf(count, facts);
  if (release === undefined) {
    const known = RELEASES.map(({ name, ranks: size }) => `${name}, ${size.toLocaleString('en')}`).join('; ');
    throw new UserError(
      `${where}: a tiktoken file of ${count.toLocaleString('en')} tokens, whose expression for cutting texts and ` +
        `special tokens are not known (known: ${known})`,
      USE_JSON,
    );
  }
  const names = release.special === LLAMA_3_1 && facts.isScaled === false ? LLAMA_3_0 : release.special;
  const added = names.map((content, i) => ({ id: count + i, content, special: true }));
  return writeByteLevel({
    ...ranks.finish(names),
    added,
    rule: release.rule,
    before: added.filter(({ content }) => content === release.bos),
  });
}
