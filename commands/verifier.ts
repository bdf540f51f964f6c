/** What a checkpoint says as a verifier: its layout of texts, and how rows become scores. */
import { basename, dirname } from 'node:path';
import type { Engine } from '../engine/engine.js';
import type { RequestOptions } from '../engine/request.js';
import { UsageError, UserError } from '../errors.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { readConfig } from '../models/config.js';
import type { Score, ScoreRule } from '../models/heads/head.js';
import { LANGUAGE_VERIFIERS, type LanguageVerifier, verifierByFolder } from '../models/heads/languageVerifiers.js';
import type { Layout } from '../models/heads/layout.js';
import { classesOf } from '../models/model/model.js';
import { recordOf } from '../models/heads/records.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { RowValues, rowsRequest, scoreOf, type Scoring } from '../search/models/scoring.js';
import type { ScoringFacts } from '../serve/models.js';
import { isRecord, quote } from '../system/json.js';
import { quoteForShell } from '../system/process.js';
import type { LoadedModel } from './loadModel.js';

const MAX_LABEL = 200;

export interface RowScore {
  readonly score: Score;
  /** What the rule gives beside it, by its name. */
  readonly beside?: number;
}

export interface Verifier {
  /** For users: what a score is. */
  readonly is: string;
  readonly layout: Layout;
  /** The name of what rows have beside their score. */
  readonly besideName?: string;
  /** Of a language model: tokens that mean right and wrong. */
  readonly verdicts?: readonly [right: number, wrong: number];
  /** How numbers of a row become its score. */
  readonly scoring: Scoring;
  /** The score of each row of the tokens; fewer where the request was ended early. */
  readonly scores: (
    engine: Engine,
    tokens: readonly number[],
    rows: readonly number[],
    options: ScoreOptions,
  ) => Promise<readonly RowScore[]>;
}

/** What requests to the engine say beside their tokens. */
export type ScoreOptions = Pick<RequestOptions, 'model' | 'signal' | 'deadline' | 'priority'>;

/** Names of `--verifier`. */
export const VERIFIER_NAMES: readonly string[] = LANGUAGE_VERIFIERS.map(({ name }) => name);

/** What a checkpoint is asked as. `note`: how that was decided, where its files do not say. */
interface Chosen {
  readonly language: LanguageVerifier | undefined;
  readonly note?: string;
}

const folderOf = (path: string): string => basename(/\.gguf$/.test(path) ? dirname(path) : path);

const verifierOf = ({ path }: Pick<Checkpoint, 'path'>): LanguageVerifier | undefined =>
  verifierByFolder(folderOf(path));

/**
 * A language model is a verifier where the user names one, or the name of its folder does; nothing in its files tells.
 * Throws UsageError where there is nothing to go by. `flag`: the one that names it.
 */
export function chooseVerifier(
  { path, config }: Pick<Checkpoint, 'path' | 'config'>,
  asked?: string,
  flag = '--verifier',
): Chosen {
  if (config.head !== undefined) {
    if (asked === undefined) return { language: undefined };
    throw new UsageError(
      `${flag} ${asked}: ${config.architecture} says itself what its scores are`,
      'leave it out: it is for verifiers that are language models',
    );
  }
  const named = LANGUAGE_VERIFIERS.find(({ name }) => name === asked);
  if (named !== undefined) return { language: named };
  const found = verifierOf({ path });
  if (found === undefined)
    throw new UsageError(
      `${path}: ${config.architecture} is a language model, and nothing says that it is a verifier`,
      `if it is one, say how it was trained: ${LANGUAGE_VERIFIERS.map(
        ({ name, covers }) => `${flag} ${name} (${covers})`,
      ).join(', ')}; to continue texts: tilewright generate ${quoteForShell(path)}`,
    );
  const note = `${folderOf(path)} is read as ${found.name}, by its name: ${flag} says otherwise`;
  return { language: found, note };
}

/** Whether a model's class says that it scores answers as a whole, which is known before it is loaded. */
export const scoresAnswers = ({ config: { head } }: Pick<Checkpoint, 'config'>): boolean =>
  head !== undefined && recordOf(head).layout.kind === 'answer';

/** Rejects with UserError where the tokenizer lacks what the verifier needs. */
export async function openVerifier(
  { config }: Pick<Checkpoint, 'config'>,
  language: LanguageVerifier | undefined,
  tokenizer: Tokenizer,
): Promise<Verifier> {
  if (language !== undefined) return ofVerdicts(language, tokenizer);
  if (config.head === undefined) throw new Error('The model has no head of classes.');
  const { layout, score } = recordOf(config.head);
  return ofClasses(layout, score, classesOf(config) ?? 0);
}

function ofClasses(layout: Layout, rule: ScoreRule, classes: number): Verifier {
  const { beside } = rule;
  const scoring: Scoring = { kind: 'classes', rule };
  return {
    is: rule.is(classes),
    layout,
    scoring,
    ...(beside === undefined ? {} : { besideName: beside.name }),
    scores: scoresBy(scoring),
  };
}

async function ofVerdicts(
  { is, layout, verdicts: texts, name }: LanguageVerifier,
  tokenizer: Tokenizer,
): Promise<Verifier> {
  const idOf = async (text: string): Promise<number> => {
    const id = (await tokenizer.encodeWritten(text)).at(-1);
    if (id === undefined) throw new UserError(`the tokenizer has no token for ${quote(text)}, a verdict of ${name}`);
    return id;
  };
  const verdicts = [await idOf(texts[0]), await idOf(texts[1])] as const;
  const scoring: Scoring = { kind: 'verdicts', verdicts };
  return { is, layout, verdicts, scoring, scores: scoresBy(scoring) };
}

const scoresBy =
  (scoring: Scoring): Verifier['scores'] =>
  async (engine, tokens, rows, options) => {
    const found = new RowValues();
    for await (const event of engine.submit({ ...rowsRequest(scoring, tokens, rows), ...options })) {
      if (event.kind === 'failed') throw event.error;
      found.take(event);
    }
    const beside = scoring.kind === 'classes' ? scoring.rule.beside : undefined;
    return rows.flatMap((row) => {
      const values = found.of(row, scoring);
      if (values === undefined) return [];
      return { score: scoreOf(scoring, values), ...(beside === undefined ? {} : { beside: beside.of(values) }) };
    });
  };

/** The token that fills lines of a batch up, as config.json has it. */
export function padTokenOf({ configPath }: Pick<Checkpoint, 'configPath'>): number | undefined {
  if (!configPath.endsWith('.json')) return undefined;
  const { pad_token_id: pad } = readConfig(configPath);
  return typeof pad === 'number' && Number.isInteger(pad) && pad >= 0 ? pad : undefined;
}

/**
 * How a served model gives scores; undefined for a language model that nothing says to be a verifier. `asked`: what it
 * was trained as. Throws UsageError where that cannot be.
 */
export function scoringFacts(
  { checkpoint, tokenizer: { bos } }: Pick<LoadedModel, 'checkpoint' | 'tokenizer'>,
  asked?: string,
): ScoringFacts | undefined {
  const { config } = checkpoint;
  const { head } = config;
  const found =
    asked === undefined ? verifierOf(checkpoint) : chooseVerifier(checkpoint, asked, '--verifier-kind').language;
  const language = head === undefined ? found?.name : undefined;
  if (head === undefined && language === undefined) return undefined;
  return {
    head: head?.kind,
    language,
    labels: labelsOf(checkpoint),
    bos: bos?.id ?? config.bosTokenId,
    pad: padTokenOf(checkpoint),
  };
}

/** Names of classes in config.json, by their numbers from 0. */
function labelsOf({ config, configPath }: Pick<Checkpoint, 'config' | 'configPath'>): readonly string[] {
  if (!configPath.endsWith('.json')) return [];
  const { id2label: labels } = readConfig(configPath);
  if (!isRecord(labels)) return [];
  return Array.from({ length: classesOf(config) ?? 0 }, (_, i) => {
    const label = labels[String(i)];
    return typeof label === 'string' && label.length <= MAX_LABEL ? label : `LABEL_${i}`;
  });
}
