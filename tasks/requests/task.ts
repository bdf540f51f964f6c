/** A task's documents as requests: prompts and continuations, to the byte those of the public harness. */
import { UserError } from '../../errors.js';
import { str } from '../../python/show.js';
import { asInt, type Dict, isDict, isList, isSpace, type PyValue } from '../../python/value.js';
import type { TaskSettings } from '../definition/settings.js';
import { Documents, portCall, type ReadSplit } from './documents.js';
import { generation } from './generation.js';
import { KeyField, Keys, OUTPUT_TYPES, type OutputType } from './keys.js';
import {
  type ChatMessage,
  chatMessages,
  delimit,
  joined,
  type PromptMessage,
  question,
  type Side,
  sideOf,
} from './prompt.js';
import { Shuffles } from './seeds.js';
import { type Shots, shotsOf } from './shots.js';

export type Request =
  | { readonly kind: 'loglikelihood'; readonly context: string; readonly continuation: string }
  | { readonly kind: 'loglikelihood_rolling'; readonly text: string }
  | { readonly kind: 'generate_until'; readonly context: string; readonly settings: Dict };

export interface DocumentRequests {
  readonly docId: number;
  /** Its number in the split, where only some documents are asked for: docId counts those. */
  readonly index?: number;
  readonly document: Dict;
  readonly target: PyValue;
  /** What is right: the target, or the index of the right context where the choices are contexts. */
  readonly gold: PyValue;
  /** The choices as they are, before a delimiter; undefined for a task without any. */
  readonly choices: readonly PyValue[] | undefined;
  /** Whether the task's targets are lists of right answers, as the harness finds by its first document. */
  readonly hasManyTargets: boolean;
  readonly requests: readonly Request[];
}

export interface TaskOptions {
  /** Shots asked for; a 0 in the task's file wins. */
  readonly shots?: number | undefined;
  /** The generator's seed, if it is not the harness's own. */
  readonly fewshotSeed?: number | undefined;
  /** Of all tasks of a run, in their order. */
  readonly shuffles?: Shuffles | undefined;
  /** The first documents; below 1, the share of them, rounded up. */
  readonly limit?: number | undefined;
  /** Only these documents, counted from 0; then `limit` does not count. */
  readonly only?: ReadonlySet<number> | undefined;
  readonly systemInstruction?: string | undefined;
  /** Renders prompts as conversations; without it, texts are joined. */
  readonly chat?: Chat | undefined;
}

export interface Chat {
  /** A conversation as text, with the opening of an answer where that is asked for. */
  readonly render: (messages: readonly ChatMessage[], opensAnswer: boolean) => string;
  /** Whether every shot is a turn of its own. */
  readonly isMultiturn: boolean;
}

/** A task whose file is understood and whose shots are read. */
export interface OpenTask {
  readonly outputType: OutputType;
  /** Shots in force. */
  readonly shots: number;
  /** Documents of the scored split, before any limit. */
  readonly total: () => Promise<number>;
  /**
   * The documents in order, each made as it is taken: memory does not grow with their number. Once only, since shots
   * are drawn from one generator. Throws UserError that names the document.
   */
  readonly documents: () => AsyncGenerator<DocumentRequests>;
}

function outputTypeOf(keys: Keys): OutputType {
  const given = keys.text('output_type') ?? 'generate_until';
  const known = OUTPUT_TYPES.find((type) => type === given);
  if (known !== undefined) return known;
  throw new UserError(
    `${keys.where('output_type')}: no type of request "${given}"; there are ${OUTPUT_TYPES.join(', ')}`,
  );
}

/** Throws UserError for what the task's file, its data or this version lacks. */
export async function openTask(
  settings: TaskSettings,
  readSplit: ReadSplit,
  options: TaskOptions = {},
): Promise<OpenTask> {
  const keys = new Keys(settings);
  const documents = new Documents(keys, readSplit, options.shuffles ?? new Shuffles());
  const outputType = outputTypeOf(keys);
  keys.processDocs();
  keys.port('process_results', outputType === 'generate_until' ? 'texts' : 'results');
  const scored = keys.text('test_split') ?? keys.text('validation_split');
  if (scored === undefined) throw new UserError(`${keys.at}: neither test_split nor validation_split`);
  const shotSettings = keys.shots();
  const shots = await shotsOf(keys, shotSettings, documents, scored, options);
  async function* made(): AsyncGenerator<DocumentRequests> {
    const { limit = Infinity, only } = options;
    const share = limit < 1 ? Math.ceil((await documents.count(scored ?? '')) * limit) : limit;
    const count = only === undefined ? share : Math.max(...only) + 1;
    let maker: Maker | undefined;
    let docId = 0,
      index = -1;
    for await (const document of documents.of(scored ?? '', count)) {
      index++;
      maker ??= new Maker(keys, shots, outputType, document, options);
      if (only?.has(index) === false) continue;
      const made = maker.make(document, docId++);
      yield only === undefined ? made : { ...made, index };
    }
    if (only !== undefined && docId < only.size)
      throw new UserError(`${keys.at}: document ${count - 1} is asked for, and there are ${index + 1}, from 0`);
  }
  return { outputType, shots: shots.count, total: () => documents.count(scored), documents: made };
}

/** All documents of a task at once. Throws UserError as openTask and its documents do. */
export async function buildRequests(
  settings: TaskSettings,
  readSplit: ReadSplit,
  options: TaskOptions = {},
): Promise<DocumentRequests[]> {
  const all: DocumentRequests[] = [];
  for await (const each of (await openTask(settings, readSplit, options)).documents()) all.push(each);
  return all;
}

/** Makes the requests of one document after another. */
class Maker {
  readonly #keys: Keys;
  readonly #shots: Shots;
  readonly #outputType: OutputType;
  readonly #options: TaskOptions;
  readonly #side: Side;
  readonly #shotSide: Side;
  readonly #description: KeyField | undefined;
  readonly #continued: string;
  readonly #generation: Dict;
  readonly #needsAlone: boolean;
  readonly #hasManyTargets: boolean;

  /** `first`: the first document of the split, which says what all have. */
  constructor(keys: Keys, shots: Shots, outputType: OutputType, first: Dict, options: TaskOptions) {
    const columns = new Set(first.keys());
    this.#keys = keys;
    this.#shots = shots;
    this.#outputType = outputType;
    this.#options = options;
    this.#side = sideOf(keys, new Map(), columns);
    this.#shotSide = shots.count === 0 ? this.#side : sideOf(keys, keys.shots(), columns);
    const description = keys.get('description');
    this.#description =
      description === null ? undefined : new KeyField(description, columns, keys.where('description'));
    const prefix = keys.text('gen_prefix') ?? '';
    const isContinued = options.chat === undefined || (prefix !== '' && !isSpace(prefix.slice(-1)));
    this.#continued = isContinued ? this.#side.targetDelimiter : '';
    this.#generation = outputType === 'generate_until' ? generation(keys, this.#side.fewshotDelimiter) : new Map();
    const metrics = keys.metrics();
    this.#needsAlone =
      isList(metrics) && metrics.some((each) => isDict(each) && each.get('metric') === 'acc_mutual_info');
    if (outputType === 'multiple_choice' && this.#side.choices === undefined)
      throw new UserError(`${keys.at}: doc_to_choice is missing`);
    const at = 'document 0';
    const target = portCall(() => this.#targetOf(first, at), keys.at, at);
    this.#hasManyTargets = isList(target);
  }

  make(document: Dict, docId: number): DocumentRequests {
    const at = `document ${docId}`;
    return portCall(() => this.#made(document, docId, at), this.#keys.at, at);
  }

  #targetOf(document: Dict, at: string): PyValue {
    return this.#side.target.target(document, at, this.#side.choices !== undefined);
  }

  #made(document: Dict, docId: number, at: string): DocumentRequests {
    const side = this.#side;
    const hasChoices = side.choices !== undefined;
    const choices = side.choices?.choices(document, at);
    const text = side.text.text(document, at, hasChoices);
    const target = this.#targetOf(document, at);
    const isMultipleInput = asInt(text) !== undefined && choices !== undefined;
    const messages = this.#before(document, at, isMultipleInput);
    const prefix = side.prefix?.plain(document, at) ?? '';
    const contextOf = (asked: PyValue, one: Side): string => {
      const all = [...messages, ...question(asked, undefined, prefix, one, choices, at)];
      const { chat } = this.#options;
      return chat === undefined ? joined(all) : chat.render(chatMessages(all, chat.isMultiturn), prefix === '');
    };
    const requests = this.#requests(text, target, choices, isMultipleInput, contextOf);
    const gold = isMultipleInput ? text : target;
    return { docId, document, target, gold, choices, hasManyTargets: this.#hasManyTargets, requests };
  }

  /** System message and shots. */
  #before(document: Dict, at: string, isMultipleInput: boolean): PromptMessage[] {
    const messages: PromptMessage[] = [];
    const shotSide = this.#shotSide;
    const hasChoices = this.#side.choices !== undefined;
    const system = delimit(
      this.#options.systemInstruction ?? '',
      this.#description?.plain(document, at) ?? '',
      this.#side.fewshotDelimiter,
    );
    if (system !== '') messages.push({ role: 'system', content: system, delimiter: '' });
    for (const shot of this.#shots.drawn(document)) {
      const of = `a shot of ${at}`;
      const asked = shotSide.text.text(shot, of, hasChoices);
      const shown = shotSide.choices?.choices(shot, of);
      const place = isMultipleInput ? asInt(asked) : undefined;
      const query = place === undefined ? asked : (shown?.at(Number(place)) ?? null);
      const answer = shotSide.target.target(shot, of, hasChoices);
      const prefix = shotSide.prefix?.plain(shot, of) ?? '';
      messages.push(...question(query, answer, prefix, shotSide, isMultipleInput ? undefined : shown, of));
    }
    return messages;
  }

  #requests(
    text: PyValue,
    target: PyValue,
    choices: readonly PyValue[] | undefined,
    isMultipleInput: boolean,
    contextOf: (asked: PyValue, side: Side) => string,
  ): Request[] {
    const side = this.#side;
    switch (this.#outputType) {
      case 'multiple_choice': {
        if (isMultipleInput) {
          const continuation = this.#continued + str(target);
          const bare = { ...side, targetDelimiter: '' };
          return (choices ?? []).map((choice) => ({
            kind: 'loglikelihood',
            context: contextOf(choice, bare),
            continuation,
          }));
        }
        const context = contextOf(text, side);
        const given = (choices ?? []).map((choice) => ({
          kind: 'loglikelihood' as const,
          context,
          continuation: this.#continued + str(choice),
        }));
        // Compared with how likely each choice is by itself.
        return this.#needsAlone ? [...given, ...given.map((each) => ({ ...each, context: '' }))] : given;
      }
      case 'loglikelihood':
        return [{ kind: 'loglikelihood', context: contextOf(text, side), continuation: str(target) }];
      case 'loglikelihood_rolling':
        return [{ kind: 'loglikelihood_rolling', text: str(target) }];
      case 'generate_until':
        return [{ kind: 'generate_until', context: contextOf(text, side), settings: this.#generation }];
      default:
        return this.#outputType satisfies never;
    }
  }
}
