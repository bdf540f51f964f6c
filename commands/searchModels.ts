/** A generator and a verifier side by side in one engine, as a search asks them. */
import type { WithTargetChoice } from '../driver/precision.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { Engine } from '../engine/engine.js';
import { readGenerationConfig } from '../models/generationConfig.js';
import { createTokenizer } from '../models/tokenizer/tokenizer.js';
import type { Dict } from '../python/value.js';
import { askOf } from '../search/asking.js';
import { EngineJudge } from '../search/models/judge.js';
import { searchTexts, TEMPLATE_DAY } from '../search/models/texts.js';
import { EngineWriter } from '../search/models/writer.js';
import type { SearchOptions } from '../search/options.js';
import type { StepWriter } from '../search/ports.js';
import { ProblemSchedule } from '../search/schedule.js';
import { defined } from '../system/defined.js';
import { draftFigures } from './draftFigures.js';
import { draftModelOf } from './draftOptions.js';
import { modelDrafts } from './drafts.js';
import { EngineModels, type OpenOptions } from './engineModels.js';
import type { LoadedModel } from './loadModel.js';
import { requireVocabulary } from './requireVocabulary.js';
import { solutionWriter } from './reward.js';
import { textWriter } from './rewardTexts.js';
import type { ModelWork, SearchRequest, SearchSchedule, VerifierRequest } from './searchRequest.js';
import { openTemplate } from './templates.js';
import { chooseVerifier, openVerifier } from './verifier.js';

/** What a search asks, of models that are open. */
export interface SearchPorts {
  readonly writer: StepWriter;
  readonly judge: EngineJudge | undefined;
  readonly schedule: ProblemSchedule;
  /** Closes threads of templates. */
  close(): Promise<void>;
}

export interface SearchedModel {
  readonly loaded: LoadedModel;
  /** Its name in the engine. */
  readonly name: string;
}

export interface SearchedVerifier extends SearchedModel {
  /** What a language model was trained as. */
  readonly language?: string | undefined;
}

/** An engine, as far as a search needs it. */
export type SearchEngine = Pick<Engine, 'submit' | 'discard' | 'limitsOf' | 'roomsOf'>;

/** Of targets whose steps take as long for so many paths as for one: a GPU reads its weights once for all of them. */
const CHEAP_PATHS: Readonly<Record<string, number>> = { cuda: 64 };

type PortOptions = Pick<SearchSchedule, 'atOnce'> & { readonly options: SearchOptions };

/** Rejects with UserError where one of them cannot do what is asked of it. */
export async function searchPorts(
  engine: SearchEngine,
  generator: SearchedModel,
  verifier: SearchedVerifier | undefined,
  { options, atOnce }: PortOptions,
  note: (line: string) => void = () => undefined,
): Promise<SearchPorts> {
  const { checkpoint } = generator.loaded;
  requireVocabulary(checkpoint, 'search');
  const templates = [generator, verifier].map((each) => each && openTemplate(each.loaded.checkpoint.path));
  const close = async (): Promise<void> => {
    for (const template of templates) await template?.close();
  };
  try {
    const writer = writerOf(engine, generator, templates[0], options);
    const judge = verifier && (await judgeOf(engine, verifier, templates[1], options, note));
    const rooms = () => ({
      writer: engine.roomsOf(generator.name),
      judge: verifier === undefined ? [] : engine.roomsOf(verifier.name),
    });
    const lanes = engine.roomsOf(generator.name).length;
    const cheapPaths = CHEAP_PATHS[generator.loaded.model.target.name];
    const schedule = new ProblemSchedule({ options, lanes, most: atOnce, rooms, ...defined({ cheapPaths }) });
    return { writer, judge, schedule, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A score depends on no calendar. */
const DAY: Dict = new Map([['date_string', TEMPLATE_DAY]]);

type Template = ReturnType<typeof openTemplate>;

function writerOf(
  engine: SearchEngine,
  { loaded, name }: SearchedModel,
  template: Template,
  options: SearchOptions,
): StepWriter {
  const { checkpoint, tokenizer: described } = loaded;
  const { maxLength, room } = engine.limitsOf(name);
  const tokenizer = createTokenizer(described.spec);
  return new EngineWriter(
    {
      ask: askOf(engine),
      discard: (text) => engine.discard(text, name),
      model: name,
      texts: searchTexts(tokenizer, template),
      detokenizer: tokenizer.detokenizer(),
      vocabSize: checkpoint.config.vocabSize,
      maxLength: Math.min(maxLength, room),
      bos: described.bos?.id ?? checkpoint.config.bosTokenId,
      eosTokens: readGenerationConfig(checkpoint, described).eosTokenIds,
      ownEos: described.eos?.id,
    },
    options,
  );
}

async function judgeOf(
  engine: SearchEngine,
  { loaded, name, language: asked }: SearchedVerifier,
  template: Template,
  options: SearchOptions,
  tell: (line: string) => void,
): Promise<EngineJudge> {
  const { language, note } = chooseVerifier(loaded.checkpoint, asked, '--verifier-kind');
  if (note !== undefined) tell(note);
  const tokenizer = createTokenizer(loaded.tokenizer.spec);
  const verifier = await openVerifier(loaded.checkpoint, language, tokenizer);
  const { maxLength, room } = engine.limitsOf(name);
  return EngineJudge.open(
    {
      ask: askOf(engine),
      discard: (text) => engine.discard(text, name),
      model: name,
      scoring: verifier.scoring,
      writer: textWriter(solutionWriter(loaded, verifier, { tokenizer, template, variables: DAY })),
      maxLength: Math.min(maxLength, room),
    },
    options,
  );
}

/** Both models, which nobody else asks. */
export interface OpenSearch extends SearchPorts {
  readonly generator: LoadedModel;
  readonly verifier: LoadedModel | undefined;
  /** Tokens that both models have computed so far. */
  readonly computedTokens: () => number;
  readonly work: () => { readonly generator: ModelWork; readonly verifier: ModelWork | undefined };
}

/** Names in the engine. */
const [GENERATOR, VERIFIER] = ['generator', 'verifier'] as const;

/** Compiles and loads both models. Rejects with UserError if the user can fix the problem. */
export async function openSearch(asked: WithTargetChoice<SearchRequest>, ui: Ui): Promise<OpenSearch> {
  const { verifier, options, memory, memorySplit, signal } = asked;
  const split = memorySplit === undefined || verifier === undefined ? undefined : [memorySplit, 1 - memorySplit];
  const models = new EngineModels({ memory, split });
  const engine = new Engine();
  const stillWanted = (): void => signal?.throwIfAborted();
  const open = async (
    name: string,
    request: WithTargetChoice<LoadRequest>,
    options: OpenOptions,
  ): Promise<SearchedModel> => {
    const { loaded, model } = await models.open(request, ui, { ...options, stillWanted });
    engine.load(name, { ...model, close: () => loaded.close() });
    return { loaded, name };
  };
  try {
    const generator = await open(
      GENERATOR,
      { ...loadOf(asked), ...draftModelOf(asked) },
      {
        logits: (options.topP ?? 1) < 1,
        drafts: modelDrafts(asked),
      },
    );
    const judging = verifier && (await open(VERIFIER, besideOf(asked, verifier), { logits: false }));
    const ports = await searchPorts(
      engine,
      generator,
      judging && { ...judging, language: verifier?.language },
      asked,
      (line) => ui.note(line),
    );
    const countsOf = (name: string, model: string): ModelWork => ({
      model,
      ...engine.countsOf(name),
    });
    return {
      ...ports,
      generator: generator.loaded,
      verifier: judging?.loaded,
      computedTokens: () =>
        [GENERATOR, ...(judging === undefined ? [] : [VERIFIER])].reduce(
          (sum, name) => sum + engine.countsOf(name).computedTokens,
          0,
        ),
      work: () => ({
        generator: { ...countsOf(GENERATOR, asked.model), drafts: draftFigures(engine.statsOf(GENERATOR)) },
        verifier: verifier && {
          ...countsOf(VERIFIER, verifier.model),
          ...defined({ neededTokens: ports.judge?.counts.neededTokens }),
        },
      }),
      close: async () => {
        await engine.close();
        await ports.close();
      },
    };
  } catch (error) {
    await engine.close();
    throw error;
  }
}

/** What is asked of the generator as a model. */
function loadOf({
  verifier: _v,
  problems: _p,
  options: _o,
  limit: _l,
  output: _f,
  modelName: _n,
  resume: _r,
  resumeCommand: _c,
  atOnce: _a,
  memorySplit: _s,
  memory: _m,
  draft: _d,
  draftTokens: _t,
  ...load
}: WithTargetChoice<SearchRequest>): WithTargetChoice<LoadRequest> {
  return load;
}

/** The devices of the verifier are the generator's, what is said of an artifact is not. */
function besideOf(
  request: WithTargetChoice<SearchRequest>,
  { model, precision }: VerifierRequest,
): WithTargetChoice<LoadRequest> {
  const { checkpoint: _, trustsCode: __, verifies: ___, dump: ____, adapter: _____, ...load } = loadOf(request);
  return { ...load, model, ...defined({ precision }) };
}
