/** A served model as a verifier: how texts are written for it, and how its rows become scores. */
import type { RequestEvent } from '../../engine/request.js';
import { UserError } from '../../errors.js';
import type { Score, ScoreRule } from '../../models/heads/head.js';
import { LANGUAGE_VERIFIERS, type LanguageVerifier } from '../../models/heads/languageVerifiers.js';
import type { Turn } from '../../models/heads/layout.js';
import { recordOf } from '../../models/heads/records.js';
import { checkTokens, type LaidOut, type SolutionWriter } from '../../models/heads/solutionTexts.js';
import { RowValues, rowsRequest, scoreOf, type Scoring } from '../../search/models/scoring.js';
import { badRequest } from '../apiError.js';
import {
  askOf,
  type ModelClient,
  requireAnyModel,
  type ScoringFacts,
  type ServedModel,
  type ServedRequest,
} from '../models.js';

/** A model that gives scores. */
export type ScoringModel = ServedModel & { readonly scoring: ScoringFacts };

const gives = (model: ServedModel | undefined): model is ScoringModel => model?.scoring !== undefined;

/** The model that a body names, or the first that gives scores. Throws ApiError 400 where it gives none. */
export function requireScoring(client: ModelClient, name: unknown): ScoringModel {
  const isNamed = name !== undefined && name !== null;
  const model = (isNamed ? undefined : client.models.find(gives)) ?? requireAnyModel(client, name);
  if (gives(model)) return model;
  throw badRequest(`the model ${JSON.stringify(model.names[0])} gives texts, and no scores`, 'model');
}

const languageOf = ({ scoring: { language } }: ScoringModel): LanguageVerifier | undefined =>
  LANGUAGE_VERIFIERS.find(({ name }) => name === language);

/** What scores of a head of classes mean; undefined for a language model. */
export const ruleOf = ({ scoring: { head } }: ScoringModel): ScoreRule | undefined =>
  head === undefined ? undefined : recordOf({ kind: head }).score;

/** Rejects with ApiError 400 where the tokenizer lacks what the verifier needs. */
export async function writerOf(model: ScoringModel): Promise<SolutionWriter> {
  const { texts, scoring } = model;
  const language = languageOf(model);
  const layout = language?.layout ?? recordOf({ kind: scoring.head ?? '' }).layout;
  const encodeWritten = async (text: string): Promise<readonly number[]> =>
    (await texts.encode([text], false))[0] ?? [];
  const idOf = async (text: string): Promise<number> => (await encodeWritten(text)).at(-1) ?? -1;
  return {
    layout,
    encodeWritten,
    bos: scoring.bos,
    pad: scoring.pad,
    verdicts: language === undefined ? undefined : [await idOf(language.verdicts[0]), await idOf(language.verdicts[1])],
    hasTemplate: texts.tokenizerInfo['chat_template'] !== undefined,
    writeTurns: (_, turns) => writeTurns(model, turns),
  };
}

/** A conversation as the model's template writes it, without the beginning of another answer. */
export const writeTurns = ({ texts }: ServedModel, turns: readonly (Turn | Readonly<Record<string, unknown>>)[]) =>
  texts.renderChat({
    messages: turns.map((each) => ({ ...each })),
    addGenerationPrompt: false,
    continueFinalMessage: false,
    variables: {},
  });

/** What a text is laid out by; its refusals become ApiErrors of the field `param`. */
export async function laidOut(model: ScoringModel, param: string, work: () => Promise<LaidOut>): Promise<LaidOut> {
  try {
    const found = await work();
    checkTokens(param, found.tokens, { vocabSize: model.vocabSize, maxPositions: model.maxLength });
    return found;
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const isLong = /: a solution of [\d,]+ tokens: /.test(error.message);
    throw badRequest(error.message, param, isLong ? 'context_length_exceeded' : undefined);
  }
}

/** What a row of a text gives. */
export interface ScoredRow {
  readonly score: Score;
  /** Of a head of classes, before any rule. */
  readonly logits?: readonly number[];
}

export interface ScoredText {
  /** In the order of the rows. */
  readonly rows: readonly ScoredRow[];
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** Scores of a text. Rejects where a value is not finite, or the request was not taken. */
export async function scoreText(
  client: ModelClient,
  model: ScoringModel,
  { tokens, rows }: LaidOut,
  verdicts: SolutionWriter['verdicts'],
  signal: AbortSignal,
): Promise<ScoredText> {
  const scoring = scoringOf(model, verdicts);
  const asked = { ...rowsRequest(scoring, tokens, rows), ...askOf(model) };
  const { events, cachedTokens } = await answered(client, asked, signal);
  const found = new RowValues();
  for (const event of events) found.take(event);
  const scored = rows.map((row) => {
    const values = found.of(row, scoring) ?? [];
    return { score: scoreOf(scoring, values), ...(scoring.kind === 'classes' ? { logits: values } : {}) };
  });
  return { rows: scored, promptTokens: tokens.length, cachedTokens };
}

/** How numbers of a row become its score. */
export function scoringOf(model: ScoringModel, verdicts: SolutionWriter['verdicts']): Scoring {
  const rule = ruleOf(model);
  return rule === undefined ? { kind: 'verdicts', verdicts: verdicts ?? [-1, -1] } : { kind: 'classes', rule };
}

/** All events of a request but its end. */
function answered(
  client: ModelClient,
  request: ServedRequest,
  signal: AbortSignal,
): Promise<{ readonly events: readonly RequestEvent[]; readonly cachedTokens: number }> {
  return new Promise((resolve, reject) => {
    const events: RequestEvent[] = [];
    const running = client.submit(request, {
      onRefused: reject,
      onEvents: (told) => {
        for (const event of told)
          if (event.kind === 'end') {
            signal.removeEventListener('abort', cancel);
            resolve({ events, cachedTokens: event.result.foundTokens });
          } else if (event.kind === 'failed') {
            signal.removeEventListener('abort', cancel);
            reject(event.error);
          } else events.push(event);
        running.acknowledge(told.length);
      },
    });
    const cancel = (): void => running.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    if (signal.aborted) cancel();
  });
}
