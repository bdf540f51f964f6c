/** `tilewright reward`: scores solutions with a reward model. */
import { type Command, Option } from 'commander';
import type { RewardRequest, RewardResult, RewardSummary } from '../commands/reward.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { isArtifact } from '../driver/names.js';
import { UsageError, UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { count, counted, cut, duration, textTable } from '../system/text.js';
import { templateFlags } from './generateFlags.js';
import type { Io } from './io.js';
import { adapterFlag } from './adapterFlags.js';
import {
  addSteppingFlags,
  addVerboseFlag,
  artifactFlags,
  deviceFlags,
  modelFlags,
  refuseCompileFlags,
} from './modelFlags.js';
import { addSections, CHECKPOINT_HELP, choice, EXIT_STATUSES, type Flags, text, threads } from './options.js';
import { printError, printText } from './print.js';
import { faceOf } from './ui.js';
import { type Context, printJsonLine, refuseHubName, sameCommand, Stopped, StoppedEarly, withUi } from './work.js';

const EXAMPLE = 'tilewright reward my-prm --input solutions.jsonl';

/** Names of models/heads/languageVerifiers.ts, which help must not load. */
export const VERIFIERS = ['rlhflow', 'math-shepherd'] as const;

const FAILED_HINT = 'the others are not touched by it; --precision f32 has the widest range of numbers';

export function addReward(program: Command, context: Context): void {
  const command = program
    .command('reward')
    .summary('score solutions with a reward model')
    .description(
      'Scores answers with a reward model: each step of a solution (process reward models), or an answer as a whole. ' +
        'What solutions have in common is computed once. A score does not depend on the other lines.',
    )
    .argument('<model>', 'checkpoint folder of a reward model, or artifact folder written by compile --cache-tokens')
    .option('--input <file>', 'JSON lines of solutions (see below), plain or .gz; - for the standard input')
    .addOption(
      new Option('--verifier <name>', 'what a model with the class of a language model was trained as').choices(
        VERIFIERS,
      ),
    );
  addSteppingFlags(command, 'solutions').option(
    '-q, --quiet',
    'print scores and errors only: no progress, no notes, no warnings, no summary',
  );
  addVerboseFlag(command)
    .option('--json', 'print a line of JSON for each solution, in their order, and nothing else')
    .option('--chat-template-kwargs <json>', 'variables of the chat template, for conversations without their own')
    .action(async (model: string, _options: unknown, self: Command) => {
      await reward(context, model, self.opts<Flags>());
    });
  addSections(command, {
    'About the input': CHECKPOINT_HELP,
    'A file of solutions': [
      'JSON lines, each of which has one of',
      '  {"question": "2 + 2?", "steps": ["We add.", "The answer is 4."]}',
      "                         written as the model's makers did",
      '  {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}',
      "                         a conversation, written by the model's chat template",
      '  {"tokens": [1, 402, 17], "rows": [1, 2]}',
      '                         token ids as they are, and the positions (from 0) of those with scores;',
      '                         without rows: the last token, or each separator of steps',
      'and an id, if you like, which is printed with the scores.',
    ],
    'Which models': [
      'Process and outcome reward models with heads of their own, sequence classifiers, token classifiers',
      'as TRL trains them, ReasonEval: the class in config.json says what a score is. Verifiers that are',
      'language models say so nowhere: --verifier rlhflow (the probability of "+" beside "-" after each',
      'step of a conversation), --verifier math-shepherd (the same at each step mark). A folder that is',
      'named as its makers named it needs no flag. docs/reward.md lists the models.',
    ],
    'What --json prints': [
      'id (else the number of the line, from 0), scores (one for each row), tokens (ids) and rows (their',
      'positions). A head with more than two labels has a list in place of a score. ReasonEval has its',
      'validities as scores, and redundancy beside them. What could not be computed has id and error.',
    ],
    Examples: [
      EXAMPLE,
      'tilewright reward my-classifier --input solutions.jsonl --json > scores.jsonl',
      'tilewright reward my-model --verifier rlhflow --input solutions.jsonl --precision f32',
      `echo '{"question": "2 + 2?", "steps": ["4"]}' | tilewright reward my-prm --input -`,
    ],
    'Exit status': EXIT_STATUSES,
  });
}

/** Everything that can be refused without looking at a file is refused before one is opened. */
function parse(context: Context, model: string, flags: Flags): Omit<WithTargetChoice<RewardRequest>, 'signal'> {
  const input = text(flags, 'input');
  if (input === undefined)
    throw new UsageError('there is nothing to score', `for example: ${EXAMPLE}\nor: --input - to read lines`);
  if (isArtifact(model)) refuseCompileFlags(flags, model);
  const verifier = text(flags, 'verifier');
  return {
    model,
    input,
    ...defined({ verifier: verifier === undefined ? undefined : choice('--verifier', verifier, VERIFIERS) }),
    ...deviceFlags(flags),
    ...modelFlags(flags),
    ...adapterFlag(flags),
    ...artifactFlags(flags, model),
    ...templateFlags(flags),
    threads: threads(flags, context.io),
  };
}

async function reward(context: Context, model: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(model);
  const face = faceOf(flags);
  const { isJson, isQuiet, isVerbose } = face;
  const request = parse(context, model, flags);
  const advice = (error: unknown): string =>
    `${error instanceof StoppedEarly || !isJson ? 'nothing is printed' : 'what was scored is above'}; ` +
    `the same command starts again:\n  ${sameCommand(context)}`;
  const { value, stoppedBy } = await withUi(context, { ...face, advice, resultsIn: 'reward' }, async (ui, signal) => {
    const story = await import('../commands/reward.js');
    return story.reward({ ...request, signal }, ui, isJson ? inOrder((result) => printLine(io, result)) : undefined);
  });
  const { results } = value;
  if (!isJson) printText(io, `${tableOf(results).join('\n')}\n`);
  for (const result of results)
    if ('error' in result) {
      context.fail();
      printError(io, new UserError(`${result.where}: ${result.error}`, FAILED_HINT), isJson);
    }
  if (!isJson && !isQuiet) io.stderr.write(`${summaryOf(value, isVerbose)}\n`);
  if (stoppedBy !== undefined) throw new Stopped(stoppedBy, advice(undefined), undefined);
}

/** Results in the order of the lines, whatever order they come in. */
function inOrder(print: (result: RewardResult) => void): (result: RewardResult, index: number) => void {
  const held = new Map<number, RewardResult>();
  let next = 0;
  return (result, index) => {
    held.set(index, result);
    for (let first = held.get(next); first !== undefined; first = held.get(++next)) {
      held.delete(next);
      print(first);
    }
  };
}

function printLine(io: Io, result: RewardResult): void {
  const { id, tokens, rows } = result;
  if ('error' in result) return printJsonLine(io, { id, error: result.error });
  const { scores, beside } = result;
  printJsonLine(io, { id, scores, ...(beside === undefined ? {} : { [beside.name]: beside.values }), tokens, rows });
}

const MAX_ID_WIDTH = 32;
/** Scores of a line in the table; JSON has all. */
const SHOWN = 12;

const shown = (score: number | readonly number[]): string =>
  typeof score === 'number' ? score.toFixed(4) : `(${score.map((each) => each.toFixed(4)).join(' ')})`;

/** A line for each solution: its scores in the order of its steps. */
function tableOf(results: readonly RewardResult[]): readonly string[] {
  const hasSeveral = results.some(({ rows }) => rows.length > 1);
  const rows = results.map((result) => {
    const name = cut(String(result.id), MAX_ID_WIDTH);
    if ('error' in result) return [name, ...(hasSeveral ? [''] : []), 'failed'];
    const { scores } = result;
    const numbers = scores.flatMap((score) => (typeof score === 'number' ? [score] : []));
    const least = numbers.length === scores.length ? Math.min(...numbers).toFixed(4) : '';
    const more = scores.length > SHOWN ? ' …' : '';
    return [name, ...(hasSeveral ? [least] : []), `${scores.slice(0, SHOWN).map(shown).join(' ')}${more}`];
  });
  return textTable([['id', ...(hasSeveral ? ['least'] : []), hasSeveral ? 'steps' : 'score'], ...rows]);
}

/** `40 solutions, 9,120 tokens in 1.9 s: 4,800 tokens/s; a score is the probability of class 1` */
function summaryOf({ is, results, counts, seconds }: RewardSummary, isVerbose: boolean): string {
  const tokens = results.reduce((sum, each) => sum + each.tokens.length, 0);
  const found = counts.foundTokens > 0 ? `, ${count(counts.foundTokens)} found in pages` : '';
  const rate = `${(results.length / seconds).toFixed(1)} solutions/s, ${count(Math.round(tokens / seconds))} tokens/s`;
  const size = `${counted(results.length, 'solution')}, ${counted(tokens, 'token')}${found}`;
  const { peakPages, pages } = counts;
  const memory = isVerbose ? `\n${count(peakPages)} of ${count(pages)} pages of keys and values` : '';
  return `${size}, in ${duration(seconds)}: ${rate}; a score is the ${is}${memory}`;
}
