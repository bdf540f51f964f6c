/** The body of a chat completion: a conversation, tools, and what is asked of the answer. */
import { z } from 'zod';
import { MAX_TOP_LOGPROBS } from '../../engine/limits.js';
import { wholeFrom } from '../../engine/options.js';
import { Prediction } from '../../draft/prediction.js';
import type { GrammarSource } from '../../grammar/source.js';
import { type CallStyle, PLAIN_CALLS, type ReasoningMarks } from '../../models/chat/answerStyles.js';
import { isGiven, isRecord } from '../../system/json.js';
import { badRequest } from '../apiError.js';
import { type ModelClient, requireModel, type ServedModel } from '../models.js';
import { answerLength, type AnswerOptions, answerOptions, MAX_TOKENS, readBody, samplingShape } from '../sampling.js';
import { readStructure } from '../structured.js';
import type { AnswerForm } from './answerReader.js';
import { conversationOf, conversationShape } from './conversation.js';
import { readContent, readMessages, textOf } from './messages.js';
import { reasoningStart, type ReasoningStart } from './reasoning.js';
import { callsSource, readToolChoice, readTools, type Tool, type ToolChoice } from './tools.js';
import { type TemplateTraits, traitsOf } from './traits.js';

const flag = z.boolean('expected true or false');

const bodySchema = z.object({
  ...samplingShape,
  ...conversationShape,
  model: z.unknown().optional(),
  tool_choice: z.unknown().optional(),
  parallel_tool_calls: flag.optional(),
  max_tokens: wholeFrom(1, MAX_TOKENS).optional(),
  max_completion_tokens: wholeFrom(1, MAX_TOKENS).optional(),
  logprobs: flag.optional(),
  top_logprobs: wholeFrom(0, MAX_TOP_LOGPROBS).optional(),
  echo: flag.optional(),
  include_reasoning: flag.optional(),
  prediction: z.unknown().optional(),
});
type Body = z.infer<typeof bodySchema>;

/** Fields that are known and would change the answer, and what to do instead. */
const REFUSED: Readonly<
  Record<string, { readonly isRefused?: (value: unknown) => boolean; readonly instead: string }>
> = {
  add_special_tokens: {
    isRefused: (value) => value !== false,
    instead: 'the chat template writes the special tokens of a conversation itself',
  },
  audio: { instead: 'the model writes texts alone' },
  chat_template: { instead: "the model's own template is used" },
  function_call: { instead: 'it was replaced by tool_choice' },
  functions: { instead: 'it was replaced by tools' },
  modalities: {
    isRefused: (value) => !Array.isArray(value) || value.some((each) => each !== 'text'),
    instead: 'the model writes texts alone',
  },
  prompt_logprobs: { instead: 'ask for them at /v1/completions, with the tokens of the conversation' },
  thinking_token_budget: { instead: 'limit the whole answer by max_completion_tokens' },
  web_search_options: { instead: 'give a tool that searches' },
};

/** A chat completion that can be asked for. */
export interface ChatRequest {
  readonly model: ServedModel;
  readonly options: AnswerOptions;
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly grammar: GrammarSource | undefined;
  /** How the answer is read. */
  readonly form: AnswerForm;
  /** Special tokens that its text must have, so that it can be read. */
  readonly marks: ReadonlySet<string>;
  readonly choice: ToolChoice;
  readonly isParallel: boolean;
  readonly idLength: number | undefined;
  /** What the content begins with: that of the message which it continues. */
  readonly echoed: string;
  readonly showsReasoning: boolean;
  /** What its content is expected to be. It changes when the answer is there, and nothing of it. */
  readonly prediction: Prediction | undefined;
}

/** Throws ApiError. */
export async function readChat(client: ModelClient, given: Readonly<Record<string, unknown>>): Promise<ChatRequest> {
  refuseFields(given);
  const body = readBody(bodySchema, given);
  const model = requireModel(client, body.model, 'text');
  const options = answerOptions(body, model, topLogProbs(body));
  const tools = readTools(body.tools);
  const choice = readToolChoice(body.tool_choice, tools);
  const structure = readStructure(given);
  const messages = readMessages(body.messages);
  const traits = await traitsOf(model);
  const input = conversationOf(given, body, traits);
  const { text, tokens } = await model.texts.renderChat(input);
  const prompt = cutLeft(tokens, options.truncateTo);
  const maxTokens = answerLength(prompt.length, body.max_completion_tokens ?? body.max_tokens, model);
  const continued = input.continueFinalMessage ? textOf(messages.at(-1)!) : undefined;
  const { reasoning: marks } = traits;
  const reasoning = marks && { marks, start: reasoningStart(marks, text, continued) };
  const style = callStyle(choice, traits);
  const isParallel = body.parallel_tool_calls ?? true;
  const grammar = guided(grammarOf({ choice, tools, style, isParallel, structure }), reasoning);
  if (grammar !== undefined) await client.checkGrammar(model, grammar);
  const last = messages.at(-1)!;
  return {
    ...{ model, options, prompt, maxTokens, grammar, choice, isParallel },
    form: {
      reasoning,
      calls: style && { format: style, known: new Set(tools.map(({ name }) => name)) },
    },
    marks: new Set(
      [marks?.open, marks?.close, style?.open, style?.close, style?.beforeArguments, style?.beforeId].filter(isText),
    ),
    idLength: style?.idLength,
    prediction: await readPrediction(body.prediction, model),
    echoed: body.echo === true && last.role === 'assistant' ? textOf(last) : '',
    showsReasoning: body.include_reasoning ?? true,
  };
}

const isText = (value: unknown): value is string => typeof value === 'string';

/** Throws ApiError 400 for what is no text, and for one that no answer of the model can be as long as. */
async function readPrediction(value: unknown, { texts, maxLength }: ServedModel): Promise<Prediction | undefined> {
  if (!isGiven(value)) return undefined;
  if (!isRecord(value) || value['type'] !== 'content')
    throw badRequest('prediction: expected an object with the type "content"', 'prediction');
  const content = readContent(value['content'], 'prediction.content');
  const text = typeof content === 'string' ? content : content.map((part) => part.text).join('');
  const [tokens = []] = await texts.encode([text], false);
  if (tokens.length > maxLength)
    throw badRequest(`prediction: ${tokens.length} tokens: the model's texts have at most ${maxLength}`, 'prediction');
  return new Prediction(tokens);
}

/** Throws ApiError 400 for fields that no answer of a chat can have. */
export function refuseFields(body: Readonly<Record<string, unknown>>): void {
  for (const [field, { isRefused = () => true, instead }] of Object.entries(REFUSED)) {
    const value = body[field];
    if (value !== undefined && value !== null && isRefused(value))
      throw badRequest(`${field} is not supported: ${instead}`, field);
  }
}

function topLogProbs({ logprobs = false, top_logprobs: top }: Body): number | undefined {
  if (!logprobs && top !== undefined && top > 0) throw badRequest('top_logprobs: only with logprobs', 'top_logprobs');
  return logprobs ? (top ?? 0) : undefined;
}

/** The last tokens, as many as asked for. */
function cutLeft(tokens: readonly number[], most: number | undefined): readonly number[] {
  return most === undefined || most < 1 || tokens.length <= most ? tokens : tokens.slice(tokens.length - most);
}

/** How calls are written, where there may be some. */
function callStyle(choice: ToolChoice, { calls }: TemplateTraits): CallStyle | undefined {
  if (choice.kind === 'none') return undefined;
  if (calls === undefined && choice.kind === 'auto')
    throw badRequest(
      'tools: how this model writes calls is not known: start the server with --tool-call-parser, or ask for ' +
        'tool_choice "required"',
      'tools',
    );
  return calls ?? PLAIN_CALLS;
}

interface Asked {
  readonly choice: ToolChoice;
  readonly tools: readonly Tool[];
  readonly style: CallStyle | undefined;
  readonly isParallel: boolean;
  readonly structure: GrammarSource | undefined;
}

/** Calls that must be made, a text of the form that is asked for, or either. */
function grammarOf({ choice, tools, style, isParallel, structure }: Asked): GrammarSource | undefined {
  if (style === undefined || choice.kind === 'none') return structure;
  if (choice.kind === 'auto')
    return structure && { kind: 'choice', of: [callsSource(tools, style, isParallel), structure] };
  const named = choice.kind === 'named' ? tools.filter(({ name }) => name === choice.name) : tools;
  return callsSource(named, style, isParallel && choice.kind === 'required');
}

/** The form of an answer that may begin with thoughts, which have none. */
function guided(
  grammar: GrammarSource | undefined,
  reasoning: { readonly marks: ReasoningMarks; readonly start: ReasoningStart } | undefined,
): GrammarSource | undefined {
  if (grammar === undefined || reasoning === undefined || reasoning.start === 'closed') return grammar;
  const { open, close } = reasoning.marks;
  const thoughts: readonly GrammarSource[] = [
    { kind: 'until', text: close },
    { kind: 'repeat', of: { kind: 'text', text: '\n' }, min: 0, max: 2 },
    grammar,
  ];
  if (reasoning.start === 'opened') return { kind: 'sequence', of: thoughts };
  return { kind: 'choice', of: [{ kind: 'sequence', of: [{ kind: 'text', text: open }, ...thoughts] }, grammar] };
}
