/**
 * vocab.json and merges.txt: byte-level pieces and how they merge. How texts are cut is decided by the class of
 * transformers that reads them.
 */
import { UserError } from '../../errors.js';
import { isRecord, parseJson, quote } from '../../system/json.js';
import { writeByteLevel } from './byteLevel.js';
import { COMMAND_R, GPT_2, GPT_NEOX, QWEN, withSpaceBefore, type ByteLevelRule } from './rules.js';

/** As many as a tokenizer.json may have. */
const MAX_MERGES = 1 << 20;
const MAX_LINE = 2048;
const USE_JSON = 'put the tokenizer.json of the model beside it: it is used if both exist';
const REFETCH = 'download vocab.json and merges.txt again';

interface TokenizerClass {
  readonly rule: ByteLevelRule;
  /** Tokens that are special where tokenizer_config.json names no others. */
  readonly special: readonly string[];
}

const END_OF_TEXT = '<|endoftext|>';
const CLASSES: Readonly<Record<string, TokenizerClass>> = {
  GPT2Tokenizer: { rule: GPT_2, special: [END_OF_TEXT] },
  CodeGenTokenizer: { rule: GPT_2, special: [END_OF_TEXT] },
  GPTNeoXTokenizer: { rule: GPT_NEOX, special: [END_OF_TEXT, '<|padding|>'] },
  Qwen2Tokenizer: { rule: QWEN, special: [END_OF_TEXT] },
  CohereTokenizer: {
    rule: COMMAND_R,
    special: ['<UNK>', '<BOS_TOKEN>', '<|END_OF_TURN_TOKEN|>', '<PAD>', '<CLS>', '<SEP>', '<MASK_TOKEN>'],
  },
};
/** The class that transformers takes for a `model_type` where no tokenizer_config.json names one. */
const CLASS_OF: Readonly<Record<string, string>> = {
  codegen: 'GPT2Tokenizer',
  cohere: 'CohereTokenizer',
  cohere2: 'CohereTokenizer',
  gpt2: 'GPT2Tokenizer',
  gpt_neo: 'GPT2Tokenizer',
  gpt_neox: 'GPTNeoXTokenizer',
  gptj: 'GPT2Tokenizer',
  mpt: 'GPTNeoXTokenizer',
  opt: 'GPT2Tokenizer',
  phi: 'GPT2Tokenizer',
  qwen2: 'Qwen2Tokenizer',
  qwen2_moe: 'Qwen2Tokenizer',
  qwen3: 'Qwen2Tokenizer',
  qwen3_moe: 'Qwen2Tokenizer',
  starcoder2: 'GPT2Tokenizer',
};

/** What a checkpoint says beside such files. */
export interface BpeFacts {
  /** `tokenizer_class` of tokenizer_config.json. */
  readonly className?: string;
  /** `model_type` of config.json. */
  readonly modelType?: string;
  /** `add_prefix_space` of tokenizer_config.json. */
  readonly addsSpace?: boolean;
  /** Whether no file beside them gives tokens ids that vocab.json lacks. */
  readonly isAlone?: boolean;
}

const of = <T>(table: Readonly<Record<string, T>>, key: string): T | undefined =>
  Object.hasOwn(table, key) ? table[key] : undefined;

/** The name of the class of transformers that reads such files; undefined if none is known. */
export const classNameOf = ({ className, modelType }: BpeFacts): string | undefined =>
  className?.replace(/Fast$/, '') ?? of(CLASS_OF, modelType ?? '');

function classOf(facts: BpeFacts, where: string): TokenizerClass {
  const { className, modelType } = facts;
  const name = classNameOf(facts);
  const found = name === undefined ? undefined : of(CLASSES, name);
  if (found !== undefined) return found;
  const known = Object.keys(CLASSES).join(', ');
  const why =
    name === undefined
      ? `tokenizer_config.json names no tokenizer_class, and none is known for model_type ${quote(modelType)}`
      : `it is for the tokenizer_class ${quote(className)}`;
  throw new UserError(`${where}: ${why}; vocab.json and merges.txt are read for ${known}`, USE_JSON);
}

/** The pairs of a merges.txt, a pair a line, the best first. Throws UserError. */
function readMerges(
  text: string,
  where: string,
  vocab: Readonly<Record<string, unknown>>,
): readonly (readonly [string, string])[] {
  const merges: [string, string][] = [];
  for (let at = 0, line = 1; at < text.length; line++) {
    const end = text.indexOf('\n', at);
    const next = end === -1 ? text.length : end;
    const content = text.slice(at, text[next - 1] === '\r' ? next - 1 : next);
    at = next + 1;
    if (content.startsWith('#version')) continue;
    const fail = (what: string): never => {
      throw new UserError(`${where}: line ${line}: ${what}`, REFETCH);
    };
    const space = content.indexOf(' ');
    const pair: [string, string] = [content.slice(0, Math.max(space, 0)), content.slice(space + 1)];
    if (content.length > MAX_LINE || pair[0] === '' || pair[1] === '' || pair[1].includes(' '))
      fail(`${quote(content)} is no pair of pieces with a space between them`);
    const stray = [...pair, pair[0] + pair[1]].find((piece) => !Object.hasOwn(vocab, piece));
    if (stray !== undefined) fail(`${quote(content)} needs ${quote(stray)}, which is not in vocab.json`);
    if (merges.push(pair) > MAX_MERGES) fail(`more than ${MAX_MERGES} merges`);
  }
  return merges;
}

/** The texts and places of both files. */
export interface BpeFiles {
  readonly vocab: string;
  readonly vocabPath: string;
  readonly merges: string;
  readonly mergesPath: string;
}

/** The tokenizer.json (its text) that gives the tokens of these files. Throws UserError. */
export function convertBpeFiles({ vocab: text, vocabPath, merges, mergesPath }: BpeFiles, facts: BpeFacts): string {
  const { rule, special } = classOf(facts, vocabPath);
  const vocab = parseJson(text, vocabPath, REFETCH);
  if (!isRecord(vocab)) throw new UserError(`${vocabPath}: expected an object of pieces and their ids`, REFETCH);
  const ids = Object.values(vocab).filter((id) => typeof id === 'number');
  if (ids.length !== Object.keys(vocab).length)
    throw new UserError(`${vocabPath}: expected a number for the id of each piece`, REFETCH);
  let next = ids.reduce((most, id) => Math.max(most, id), -1) + 1;
  const pieces = vocab as Readonly<Record<string, number>>;
  const added = special.flatMap((content) => {
    const id = of(pieces, content) ?? (facts.isAlone === true ? next++ : undefined);
    return id === undefined ? [] : [{ id, content, special: true }];
  });
  return writeByteLevel({
    vocab: pieces,
    merges: readMerges(merges.trimEnd(), mergesPath, pieces),
    added,
    rule: facts.addsSpace === true ? withSpaceBefore(rule) : rule,
  });
}
