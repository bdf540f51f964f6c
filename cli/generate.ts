/** `tilewright generate`: continues prompts. */
import type { Command } from 'commander';
import type { GenerateRequest } from '../commands/generate.js';
import type { ContinueListener, PromptResult } from '../commands/textGenerator.js';
import { isArtifact } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { UsageError, UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { codeOf } from '../system/process.js';
import { converse } from './conversation.js';
import { addDraftFlags, draftFlags } from './draftFlags.js';
import { addGenerateFlags, generateFlags, structureFlags, templateFlags } from './generateFlags.js';
import type { Input, Io } from './io.js';
import { adapterFlag, namedFlag } from './adapterFlags.js';
import {
  addSteppingFlags,
  addVerboseFlag,
  artifactFlags,
  deviceFlags,
  modelFlags,
  refuseCompileFlags,
} from './modelFlags.js';
import {
  addSections,
  CHECKPOINT_HELP,
  EXIT_STATUSES,
  type Flags,
  isSet,
  text,
  threads,
  withMaxTokens,
} from './options.js';
import { printable, printError } from './print.js';
import { faceOf } from './ui.js';
import { type Context, printJsonLine, refuseHubName, sameCommand, Stopped, StoppedEarly, withUi } from './work.js';

const EXAMPLE = 'tilewright generate models/demo "Once upon a time"';

const FAILED_HINT = 'the others are not touched by it; --precision f32 has the widest range of numbers';

export function addGenerate(program: Command, context: Context): void {
  const command = program
    .command('generate')
    .summary('continue prompts')
    .description(
      'Continues each prompt with the most likely tokens. Prompts are computed together; a beginning that several ' +
        'have in common is computed once. What a prompt gets does not depend on the others.',
    )
    .argument(
      '<model>',
      'checkpoint folder or .gguf file, or artifact folder written by tilewright compile --cache-tokens',
    )
    .argument('[text...]', 'what to continue')
    .option(
      '--prompts <file>',
      'a prompt on each line, or JSON lines (see below), plain or .gz; - for the standard input',
    );
  addSteppingFlags(addDraftFlags(addGenerateFlags(command)), 'prompts').option(
    '-q, --quiet',
    'print texts and errors only: no progress, no notes, no warnings, no summary',
  );
  addVerboseFlag(command)
    .option('--json', 'print a line of JSON for each prompt, in their order, and nothing else')
    .option('--print-prompts', 'print each prompt as the model sees it, with --json its tokens as well, and end')
    .option(
      '--chat-template-kwargs <json>',
      'variables of the chat template, such as \'{"enable_thinking": false}\', for conversations without their own',
    )
    .action(async (model: string, prompts: readonly string[], _options: unknown, self: Command) => {
      await generate(context, model, prompts, withMaxTokens(self.opts<Flags>(), 'maxNewTokens'));
    });
  addSections(command, {
    'About the input': CHECKPOINT_HELP,
    'A file of prompts': [
      'Text: every line that is not blank is a prompt. JSON lines (named .jsonl, or beginning with {):',
      '  {"prompt": "Once upon a time"}   a text',
      '  {"tokens": [1, 402, 17]}         token ids as they are; nothing is put before them',
      '  {"messages": [{"role": "user", "content": "Hello!"}]}',
      "                                   a conversation, written by the checkpoint's chat template",
      'Any of them may name an adapter of --adapter NAME=DIR: {"prompt": "…", "adapter": "NAME"}. Lines',
      'that name none get the model alone. Where no line names one, the whole model has the adapter.',
      'Beside messages there may be tools, documents, chat_template_kwargs (an object of variables of the',
      'template) and add_generation_prompt (false: the last message is continued). A message may have',
      'tool_calls, tool_call_id, a list of parts as its content, and other keys that templates read.',
    ],
    'On a terminal': [
      'Without prompts, every message that you type is answered. A checkpoint with a chat template keeps',
      'the conversation. Arrow keys move and go back to earlier messages, a paste of several lines is one',
      'message. Ctrl-C stops an answer, and leaves when pressed twice; Ctrl-D leaves.',
    ],
    'Several devices': [
      'dp=4       the whole model on each of four devices, each of which continues a part of the prompts',
      'pp=4       a pipeline: each of four devices holds a part of the layers, with their keys and values',
      'dpxpp=2x2  two pipelines of two devices each',
      'auto       dp where the model fits each of --devices, else pipelines; by default on all GPUs',
      'All give the same texts. What a device that fails had computed is computed again on the others, or',
      'on the one that replaces it.',
    ],
    'Which tokens are chosen': [
      'The most likely ones, unless flags say otherwise. generation_config.json of a checkpoint adds',
      'tokens that end a text; sampling that it suggests is shown, and never applied unasked.',
    ],
    'What --json prints': [
      'index, adapter (where the prompt names one), text, tokens, logprobs (natural logarithms), reason,',
      'promptTokens, foundTokens. The reason',
      'is eos (end-of-text token), stop (--stop), length (--max-new-tokens), context (the model knows no',
      'longer text), cache (--cache-tokens is used up) or aborted (Ctrl-C). A prompt that could not be',
      'computed has index and error. With --n, --best-of or --beams there is a line for each text, with',
      'sample (from 0) and, where texts are ranked, score: the log-probability of a path of --beams, the',
      'mean of the tokens of --best-of. With --top-logprobs, topLogprobs: a list of {token, logprob} for',
      'each token. Where --draft is given, drafts: {drafted, accepted}, which depends on the moment.',
    ],
    'What --print-prompts prints': [
      'With --json a line {"text": …, "tokens": [ids]} for each prompt; no weights are read, nothing is',
      'compiled. Without it the texts, as a chat template writes them.',
    ],
    Examples: [
      EXAMPLE,
      'tilewright generate models/demo "The sky is" "Two and two make" --max-new-tokens 16',
      'tilewright generate models/demo --prompts prompts.txt --stop "\\n" --json > texts.jsonl',
      'tilewright generate models/demo "The sky is" --n 3 --temperature 0.8 --seed 7',
      'tilewright generate models/demo "The sky is" --beams 4 --max-new-tokens 16',
      'echo "The sky is" | tilewright generate models/demo --prompts - --quiet',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

/** Everything that can be refused without looking at a file is refused before one is opened. */
async function parse(
  context: Context,
  model: string,
  prompts: readonly string[],
  flags: Flags,
  isTyped: boolean,
): Promise<Omit<WithTargetChoice<GenerateRequest>, 'signal'>> {
  const promptFile = text(flags, 'prompts');
  if (prompts.length === 0 && promptFile === undefined && !isTyped)
    throw new UsageError(
      'there is nothing to continue',
      `for example: ${EXAMPLE}\nor: --prompts FILE, or --prompts - to read lines that are piped in`,
    );
  const empty = prompts.findIndex((prompt) => prompt === '');
  if (empty >= 0) throw new UsageError(`prompt ${empty + 1} is empty`, `for example: ${EXAMPLE}`);
  if (isArtifact(model)) refuseCompileFlags(flags, model, ['cacheTokens']);
  return {
    model,
    prompts: prompts.map((prompt, i) => ({ where: `prompt ${i + 1}`, prompt: { prompt } })),
    ...defined({ promptFile }),
    ...(await generateFlags(flags)),
    ...structureFlags(flags),
    ...draftFlags(flags),
    ...deviceFlags(flags),
    ...modelFlags(flags),
    ...namedFlag(flags),
    ...artifactFlags(flags, model),
    ...templateFlags(flags),
    threads: threads(flags, context.io),
  };
}

/** Prompts as the model sees them. What the model would be is not looked at. */
async function printAll(
  { io }: Context,
  request: Omit<WithTargetChoice<GenerateRequest>, 'signal'>,
  isJson: boolean,
): Promise<void> {
  const { model, checkpoint, prompts, promptFile, templateVariables } = request;
  const isOnly = promptFile === undefined && prompts.length === 1;
  const reader = readerOf(io);
  try {
    const { printPrompts } = await import('../commands/generate.js');
    await printPrompts(
      {
        model,
        prompts,
        signal: reader.signal,
        ...defined({ checkpoint, promptFile, templateVariables }),
      },
      ({ where, text: written, tokens }) => {
        if (isJson) printJsonLine(io, { text: written, tokens });
        else io.stdout.write(`${isOnly ? '' : `--- ${where}\n`}${textFor(io, written)}\n`);
      },
    );
  } catch (error) {
    if (!reader.signal.aborted) throw error;
  } finally {
    reader.end();
  }
}

/** The terminal that prompts can be typed on and answers be read from. */
const terminalOf = ({ stdin, stdout }: Io): Input | undefined =>
  stdout.isTTY === true && stdin?.isTTY === true ? stdin : undefined;

/** Aborts once whoever reads the standard output is gone. */
function readerOf({ stdout }: Io): { readonly signal: AbortSignal; end(): void } {
  const controller = new AbortController();
  const onError = (error: unknown): void => {
    if (codeOf(error) === 'EPIPE') controller.abort();
  };
  stdout.on('error', onError);
  return { signal: controller.signal, end: () => stdout.removeListener('error', onError) };
}

/** What a terminal gets is made harmless; a file or a program gets the text as it is. */
const textFor = ({ stdout }: Io, generated: string): string =>
  stdout.isTTY === true ? printable(generated) : generated;

/** A single text on a terminal, as it comes. */
const streaming = (io: Io): ContinueListener => ({
  onPiece: (_, piece) => {
    io.stdout.write(textFor(io, piece.text));
  },
  onResults: (_, [result]) => {
    if (result !== undefined && !('error' in result)) io.stdout.write(`${textFor(io, result.rest)}\n`);
  },
});

/** Whole texts, in the order of the prompts. */
function inOrder(print: (results: readonly PromptResult[]) => void): ContinueListener {
  const held = new Map<number, readonly PromptResult[]>();
  let next = 0;
  return {
    onResults: (index, done) => {
      held.set(index, done);
      for (let results = held.get(next); results !== undefined; results = held.get(++next)) {
        held.delete(next);
        print(results);
      }
    },
  };
}

/**
 * `isNumbered`: several texts of a prompt may come. `hasDrafts`: with what became of drafts, which depends on what
 * else is computed.
 */
function printLine(io: Io, result: PromptResult, isNumbered: boolean, hasDrafts: boolean): void {
  const { index, sample } = result;
  const of = { ...(isNumbered ? { index, sample } : { index }), ...defined({ adapter: result.adapter }) };
  if ('error' in result) return printJsonLine(io, { ...of, error: result.error });
  const { text: generated, tokens, logProbs, score, top, reason, promptTokens, foundTokens, drafts } = result;
  printJsonLine(io, {
    ...of,
    text: generated,
    tokens,
    logprobs: logProbs,
    ...defined({ score }),
    ...defined({
      topLogprobs: top && top.map((each) => each.map(({ token, logProb }) => ({ token, logprob: logProb }))),
    }),
    reason,
    promptTokens,
    foundTokens,
    ...(hasDrafts ? { drafts: drafts ?? { drafted: 0, accepted: 0 } } : {}),
  });
}

/** `isOnly`: no other text is printed. */
function printText(io: Io, result: PromptResult, count: number, isOnly: boolean): void {
  if ('error' in result) return;
  const which = count === 1 ? '' : `, ${result.sample + 1} of ${count}`;
  io.stdout.write(`${isOnly && count === 1 ? '' : `--- ${result.where}${which}\n`}${textFor(io, result.text)}\n`);
}

async function generate(context: Context, model: string, prompts: readonly string[], flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(model);
  const face = faceOf(flags);
  const { isJson, isQuiet, isVerbose } = face;
  const printsPrompts = isSet(flags, 'printPrompts');
  const mayType = prompts.length === 0 && flags['prompts'] === undefined && !isJson && !printsPrompts;
  const typed = mayType ? terminalOf(io) : undefined;
  const { prompts: named, ...asked } = await parse(context, model, prompts, flags, typed !== undefined);
  if (printsPrompts) return printAll(context, { ...asked, prompts: named }, isJson);
  const { n = 1, bestOf, beams } = asked;
  const isNumbered = n > 1 || bestOf !== undefined || beams !== undefined;
  if (typed !== undefined) {
    if (isNumbered)
      throw new UsageError(
        '--n, --best-of, --beams: a conversation has one answer to each line',
        `${EXAMPLE} --beams 4`,
      );
    if (asked.structure !== undefined)
      throw new UsageError('--json-schema, --json-object, --regex, --choice: not for a conversation', EXAMPLE);
    const { named: _, ...rest } = asked;
    return converse(context, typed, { ...rest, ...adapterFlag(flags) }, face);
  }
  const request = { ...asked, prompts: named };
  const isOnly = request.promptFile === undefined && prompts.length === 1;
  const isStreamed = isOnly && !isNumbered && !isJson && io.stdout.isTTY === true;
  const listener = isStreamed
    ? streaming(io)
    : inOrder((results) => {
        for (const result of results)
          if (isJson) printLine(io, result, isNumbered, asked.draft !== undefined);
          else printText(io, result, results.length, isOnly);
      });
  const advice = (error: unknown): string =>
    `${error instanceof StoppedEarly ? 'nothing was generated yet' : 'what was generated is above'}; ` +
    `the same command starts again:\n  ${sameCommand(context)}`;
  const reader = readerOf(io);
  try {
    const { value, stoppedBy } = await withUi(
      context,
      { ...face, advice, resultsIn: 'generate', isStreamed },
      async (ui, signal) => {
        const story = await import('../commands/generate.js');
        return story.generate({ ...request, signal: AbortSignal.any([signal, reader.signal]) }, ui, listener);
      },
    );
    if (reader.signal.aborted) return;
    for (const result of value.results)
      if ('error' in result) {
        context.fail();
        printError(io, new UserError(`${result.where}: ${result.error}`, FAILED_HINT), isJson);
      }
    if (!isJson && !isQuiet) {
      const { generateSummary } = await import('./generateSummary.js');
      io.stderr.write(`${generateSummary(value, isVerbose)}\n`);
    }
    if (stoppedBy !== undefined) throw new Stopped(stoppedBy, advice(undefined), undefined);
  } finally {
    reader.end();
  }
}
