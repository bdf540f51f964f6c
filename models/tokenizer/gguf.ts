/** The tokenizer of a GGUF file, as a tokenizer.json that gives the same tokens. */
import { zip } from '../../system/at.js';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';
import { readGgufHeader } from '../gguf/file.js';
import type { Metadata } from '../gguf/metadata.js';
import * as rules from './byteLevel.js';
import { type ByteLevelRule, writeByteLevel } from './byteLevel.js';
import type { TextBounds, TokenOf } from './namedTokens.js';
import { writePieces } from './sentencepiece.js';

// The rules by which byte-level tokenizers of GGUF files cut texts: tokenizer.ggml.pre names the tokenizer that a file
// was made from, and many cut alike. Source of the names: llama.cpp's llama-vocab.cpp.

const NAMES: readonly (readonly [ByteLevelRule, string])[] = [
  [rules.LLAMA_3, 'llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 midm-2.0 pixtral'],
  [rules.DBRX, 'dbrx smaug-bpe glm4 chatglm-bpe'],
  [rules.QWEN, 'qwen2 deepseek-r1-qwen f2llmv2 hunyuan kormo megrez stablelm2'],
  [rules.GROK_2, 'grok-2 solar-open'],
  [rules.QWEN_3_5, 'qwen35'],
  [rules.GPT_4O, 'gpt-4o kanana2 llama4 minimax-m2 talkie'],
  [rules.TEKKEN, 'tekken'],
  [rules.GPT_2, 'gpt-2 a.x-4.0 exaone4 gigachat granite-docling jais mellum phi-2 trillion'],
  [rules.GPT_NEOX, 'olmo mpt'],
  [rules.STARCODER, 'starcoder codeshell exaone mellum2 minerva-7b refact smollm'],
  [rules.COMMAND_R, 'command-r'],
  [rules.DEEPSEEK_LLM, 'deepseek-llm'],
  [rules.DEEPSEEK_CODER, 'deepseek-coder'],
  [rules.DEEPSEEK_V3, 'deepseek-v3 hunyuan-dense hy_v4 joyai-llm'],
  [rules.FALCON, 'falcon'],
  [rules.BLOOM, 'bloom gpt3-finnish poro-chat'],
  [rules.VIKING, 'viking'],
  [rules.BAILING_MOE, 'bailingmoe bailingmoe2 llada-moe'],
  [rules.SEED_CODER, 'seed-coder'],
  [rules.MINICPM_5, 'minicpm5'],
];

const RULES: ReadonlyMap<string, ByteLevelRule> = new Map(
  NAMES.flatMap(([rule, names]) => names.split(' ').map((name): [string, ByteLevelRule] => [name, rule])),
);

/** The rule that a tokenizer.ggml.pre names; undefined if none is known. */
export const preTokenizerOf = (name: string): ByteLevelRule | undefined => RULES.get(name);

/** Every tokenizer.ggml.pre whose rule is known. */
export const PRE_TOKENIZERS: readonly string[] = [...RULES.keys()];

// The tokenizer of a GGUF file: its tokens, how they are merged, and the tokens around a text.

const PREFIX = 'tokenizer.ggml.';
const MAX_PIECE_BYTES = 4096;
const MAX_IDS = 1 << 22;
/** As many as a tokenizer.json may have. */
const MAX_MERGES = 1 << 20;
const MERGE_BYTES = 2 * MAX_PIECE_BYTES + 1;

/** Types of tokens. */
export const TOKEN_TYPES = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

export interface GgufToken {
  readonly piece: string;
  /** One of TOKEN_TYPES. */
  readonly type: number;
}

interface AddedTokens {
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
}

/** SentencePiece: of two neighbours, those merge first whose piece has the best score. */
export interface ScoredVocabulary extends AddedTokens {
  readonly kind: 'scored';
  readonly pieces: readonly (GgufToken & { readonly score: number })[];
  /** Whether a space is put before a text. */
  readonly addsSpace: boolean;
}

/** Byte-level pieces, which merge by a list. */
export interface MergedVocabulary extends AddedTokens {
  readonly kind: 'merged';
  readonly tokens: readonly GgufToken[];
  readonly merges: readonly string[];
  readonly rule: ByteLevelRule;
}

export type GgufVocabulary = ScoredVocabulary | MergedVocabulary;

const USE_HF = 'use the Hugging Face checkpoint of the model, with its tokenizer.json';

/** Settings that change tokens, as they must be. */
const FIXED = ['remove_extra_whitespaces', 'add_sep_token', 'normalizer.lowercase', 'normalizer.strip_accents'];

/** Reads the keys tokenizer.ggml.*. Throws UserError, one line, for a tokenizer that is not known. */
export function readVocabulary(metadata: Metadata): GgufVocabulary {
  const { where } = metadata;
  const refuse = (what: string): never => {
    throw new UserError(`${where}: ${what}`, USE_HF);
  };
  const model = metadata.text(`${PREFIX}model`) ?? refuse(`${PREFIX}model is missing: the file has no tokenizer`);
  for (const key of FIXED)
    if (metadata.flag(`${PREFIX}${key}`) === true) refuse(`${PREFIX}${key} is true, which is not supported`);
  if (metadata.has(`${PREFIX}precompiled_charsmap`))
    refuse(`${PREFIX}precompiled_charsmap: a table of characters is not supported here`);
  const texts =
    metadata.texts(`${PREFIX}tokens`, MAX_PIECE_BYTES) ?? refuse(`${PREFIX}tokens is missing: there is no vocabulary`);
  const ofEach = (name: string): readonly number[] | undefined => {
    const list = metadata.numbers(`${PREFIX}${name}`);
    if (list !== undefined && list.length !== texts.length)
      refuse(`${PREFIX}${name} has ${list.length} entries for ${texts.length} tokens`);
    return list;
  };
  const types = ofEach('token_type') ?? refuse(`${PREFIX}token_type is missing`);
  const known: readonly number[] = Object.values(TOKEN_TYPES);
  const stray = types.findIndex((type) => !known.includes(type));
  if (stray !== -1) refuse(`${PREFIX}token_type: token ${stray} is of unknown type ${types[stray]}`);
  const tokens = zip(texts, types).map(([piece, type]) => ({ piece, type }));
  const id = (name: string): number | undefined => {
    const stated = metadata.whole(`${PREFIX}${name}_token_id`, 0, MAX_IDS);
    return stated !== undefined && stated >= tokens.length
      ? refuse(`${PREFIX}${name}_token_id is ${stated}, and there are ${tokens.length} tokens`)
      : stated;
  };
  /** SentencePiece's usual ids, which files of such models need not state. */
  const control = (usual: number): number | undefined =>
    tokens[usual]?.type === TOKEN_TYPES.control ? usual : undefined;
  const around = (addsBos: boolean): AddedTokens => ({
    addBos: metadata.flag(`${PREFIX}add_bos_token`) ?? addsBos,
    addEos: metadata.flag(`${PREFIX}add_eos_token`) ?? false,
    bosId: id('bos'),
    eosId: id('eos'),
  });
  switch (model) {
    case 'llama': {
      const scores = ofEach('scores') ?? refuse(`${PREFIX}scores is missing`);
      const pieces = zip(tokens, scores).map(([token, score]) => ({ ...token, score }));
      const addsSpace = metadata.flag(`${PREFIX}add_space_prefix`) ?? true;
      const { bosId = control(1), eosId = control(2), ...adds } = around(true);
      return { kind: 'scored', pieces, addsSpace, ...adds, bosId, eosId };
    }
    case 'gpt2': {
      const name = metadata.text(`${PREFIX}pre`) ?? refuse(`${PREFIX}pre is missing: how texts are cut is not known`);
      const rule =
        preTokenizerOf(name) ??
        refuse(
          `${PREFIX}pre ${quote(name)} names a rule for cutting texts that is not known ` +
            `(docs/families.md lists the ${PRE_TOKENIZERS.length} names that are)`,
        );
      if (metadata.flag(`${PREFIX}add_space_prefix`) === true)
        refuse(`${PREFIX}add_space_prefix is true, which is not supported here`);
      const merges = metadata.texts(`${PREFIX}merges`, MERGE_BYTES, MAX_MERGES) ?? refuse(`${PREFIX}merges is missing`);
      return { kind: 'merged', tokens, merges, rule, ...around(rule.addsBos ?? false) };
    }
    default:
      return refuse(`${PREFIX}model ${quote(model)} is not supported; supported: llama, gpt2`);
  }
}

/** A chat template of the file by its name; undefined if it has none of that name. */
export function ggufTemplate(metadata: Metadata, name: string, usual: string): string | undefined {
  return metadata.text(name === usual ? 'tokenizer.chat_template' : `tokenizer.chat_template.${name}`);
}

/** Texts of the special tokens that templates read. */
export function specialTexts(metadata: Metadata): Readonly<Record<string, string>> {
  const texts = metadata.texts(`${PREFIX}tokens`, MAX_PIECE_BYTES) ?? [];
  const names = { bos: 'bos', eos: 'eos', unknown: 'unk', padding: 'pad', seperator: 'sep', cls: 'cls' };
  return Object.fromEntries(
    Object.entries(names).flatMap(([key, name]) => {
      const id = metadata.whole(`${PREFIX}${key}_token_id`, 0, MAX_IDS);
      const text = id === undefined ? undefined : texts[id];
      return text === undefined ? [] : [[`${name}_token`, text]];
    }),
  );
}

// The tokenizer of a GGUF file as the text of a tokenizer.json that gives the same tokens.

/** The metadata of a GGUF file. Throws UserError. */
export const ggufMetadata = (path: string): Metadata => readGgufHeader(path).metadata;

/**
 * What decides the tokens of a GGUF file. Throws UserError if its tokenizer is not known, or has more tokens than the
 * model, where that has `embeddings`.
 */
export function describeGgufTokenizer(
  path: string,
  embeddings = Infinity,
): TextBounds & { readonly vocabSize: number; readonly hash: string } {
  const metadata = ggufMetadata(path);
  const vocabulary = readVocabulary(metadata);
  const tokens = vocabulary.kind === 'scored' ? vocabulary.pieces : vocabulary.tokens;
  const { length } = tokens;
  if (length > embeddings)
    throw new UserError(
      `${path}: tokenizer.ggml.tokens has ${length} tokens, and token_embd.weight ${embeddings} rows`,
      USE_HF,
    );
  const bound = (id: number | undefined): TokenOf | undefined =>
    id === undefined || tokens[id] === undefined ? undefined : { id, text: tokens[id].piece };
  const [bos, eos] = [bound(vocabulary.bosId), bound(vocabulary.eosId)];
  return {
    ...defined({ bos, eos }),
    vocabSize: length,
    hash: metadata.digest('tokenizer.ggml.'),
  };
}

/** The tokenizer.json of a GGUF file. Throws UserError. */
export function convertGgufTokenizer(path: string): string {
  const vocabulary = readVocabulary(ggufMetadata(path));
  return vocabulary.kind === 'scored' ? fromScores(vocabulary, path) : fromMerges(vocabulary, path);
}

function fromScores({ pieces, addsSpace, bosId, eosId, addBos, addEos }: ScoredVocabulary, path: string): string {
  checkScores(pieces, path);
  const byteFallback = pieces.some(({ type }) => type === TOKEN_TYPES.byte);
  return writePieces(
    { pieces, byteFallback, addDummyPrefix: addsSpace, bosId: bosId ?? 1, eosId: eosId ?? 2 },
    path,
    { addBos, addEos },
    { hasUnused: true },
  );
}

/**
 * Converters that do not know the scores write one for all pieces, and the order of merges is lost. A few pieces with
 * one score are usual: LLaMA's runs of spaces.
 */
function checkScores(pieces: ScoredVocabulary['pieces'], path: string): void {
  const longer = pieces.filter(({ piece, type }) => type === TOKEN_TYPES.normal && [...piece].length > 1);
  const scores = new Set(longer.map(({ score }) => score));
  if (2 * scores.size < longer.length)
    throw new UserError(
      `${path}: tokenizer.ggml.scores has ${scores.size} different scores for ${longer.length} pieces: ` +
        'the order of merges is not known',
      USE_HF,
    );
}

function fromMerges({ tokens, merges, rule, ...around }: MergedVocabulary, path: string): string {
  const vocab = Object.create(null) as Record<string, number>;
  tokens.forEach(({ piece }, id) => {
    if (piece in vocab)
      throw new UserError(`${path}: tokens ${vocab[piece]} and ${id} are both ${quote(piece)}`, USE_HF);
    vocab[piece] = id;
  });
  const special = (name: 'bos' | 'eos', id: number | undefined): { id: number; content: string } => {
    const token = id === undefined ? undefined : tokens[id];
    if (id === undefined || token === undefined)
      throw new UserError(`${path}: tokenizer.ggml.add_${name}_token is true, and no ${name} token is given`, USE_HF);
    return { id, content: token.piece };
  };
  return writeByteLevel({
    vocab,
    merges,
    added: tokens.flatMap(({ piece, type }, id) =>
      type === TOKEN_TYPES.control || type === TOKEN_TYPES.userDefined || type === TOKEN_TYPES.unknown
        ? [{ id, content: piece, special: type !== TOKEN_TYPES.userDefined }]
        : [],
    ),
    rule,
    before: around.addBos ? [special('bos', around.bosId)] : [],
    after: around.addEos ? [special('eos', around.eosId)] : [],
  });
}
