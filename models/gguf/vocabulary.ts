/** The tokenizer of a GGUF file: its tokens, how they are merged, and the tokens around a text. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import type { ByteLevelRule } from '../tokenizers/rules.js';
import type { Metadata } from './metadata.js';
import { PRE_TOKENIZERS, preTokenizerOf } from './preTokenizers.js';

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

interface Around {
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
}

/** SentencePiece: of two neighbours, those merge first whose piece has the best score. */
export interface ScoredVocabulary extends Around {
  readonly kind: 'scored';
  readonly pieces: readonly (GgufToken & { readonly score: number })[];
  /** Whether a space is put before a text. */
  readonly addsSpace: boolean;
}

/** Byte-level pieces, which merge by a list. */
export interface MergedVocabulary extends Around {
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
  const tokens = texts.map((piece, id) => ({ piece, type: types[id]! }));
  const id = (name: string): number | undefined => {
    const stated = metadata.whole(`${PREFIX}${name}_token_id`, 0, MAX_IDS);
    return stated !== undefined && stated >= tokens.length
      ? refuse(`${PREFIX}${name}_token_id is ${stated}, and there are ${tokens.length} tokens`)
      : stated;
  };
  /** SentencePiece's usual ids, which files of such models need not state. */
  const control = (usual: number): number | undefined =>
    tokens[usual]?.type === TOKEN_TYPES.control ? usual : undefined;
  const around = (addsBos: boolean): Around => ({
    addBos: metadata.flag(`${PREFIX}add_bos_token`) ?? addsBos,
    addEos: metadata.flag(`${PREFIX}add_eos_token`) ?? false,
    bosId: id('bos'),
    eosId: id('eos'),
  });
  switch (model) {
    case 'llama': {
      const scores = ofEach('scores') ?? refuse(`${PREFIX}scores is missing`);
      const pieces = tokens.map((token, i) => ({ ...token, score: scores[i]! }));
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
