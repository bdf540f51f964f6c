/** `tilewright search`: searches for answers with a generator and a verifier. */
import { type Command, Option } from 'commander';
import type { ModelWork, SearchedProblem, SearchRequest, SearchSummary } from '../commands/searchRequest.js';
import { isArtifact } from '../driver/names.js';
import { PRECISIONS, type WithTargetChoice } from '../driver/precision.js';
import { UsageError, UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { count, counted, cut, duration, textTable } from '../system/text.js';
import { addDraftFlags, draftFlags } from './draftFlags.js';
import { draftSummary } from './draftText.js';
import { adapterFlag } from './adapterFlags.js';
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
  choice,
  EXIT_STATUSES,
  type Flags,
  isSet,
  text,
  threads,
  wholeNumber,
} from './options.js';
import { printableLine, printError, printText } from './print.js';
import { VERIFIERS } from './reward.js';
import { addSearchFlags, searchFlags } from './searchFlags.js';
import { faceOf } from './ui.js';
import { type Context, printJsonLine, refuseHubName, sameCommand, Stopped, StoppedEarly, withUi } from './work.js';

const EXAMPLE = 'tilewright search my-model --verifier my-prm --problems problems.jsonl';
/** Names of commands/searchProblems.ts, which help must not load. */
export const SET_NAMES = ['minerva_math500', 'gsm8k'] as const;
const MAX_AT_ONCE = 4096;
const MAX_LIMIT = 1_000_000;

export function addSearch(program: Command, context: Context): void {
  const command = program
    .command('search')
    .summary('search for answers with a generator and a verifier')
    .description(
      'Searches for answers to problems: a generator draws steps, a verifier scores them, and a method chooses those ' +
        'that go on. Results are the same bits however many problems run at once, and on however many devices.',
    )
    .argument('<generator>', 'checkpoint folder, GGUF file, or artifact folder written by compile --cache-tokens')
    .option('--verifier <model>', 'a reward model that scores steps or answers; majority needs none')
    .addOption(
      new Option('--verifier-kind <name>', 'what a verifier with the class of a language model was trained as').choices(
        VERIFIERS,
      ),
    )
    .option('--verifier-precision <p>', "as --precision, of the verifier (default: the generator's)")
    .option('--problems <file>', 'JSON lines of problems (see below), plain or .gz; - for the standard input')
    .addOption(new Option('--task <name>', 'a set of problems instead, in the cache of the hub').choices(SET_NAMES))
    .option('--data-root <dir>', 'folder of data sets, instead of the cache of the hub')
    .option('--limit <n>', 'the first n problems')
    .option('--out <dir>', 'folder for results, samples and the journal')
    .option('--model-name <name>', "the generator's name in results (default: its folder's)")
    .option('--resume', 'go on with the journal in --out')
    .option('--at-once <n>', 'problems that are searched at a time (default: as memory allows)')
    .option('--memory-split <share>', "the generator's share of memory for keys and values, as 0.3 (default: auto)");
  addSearchFlags(command);
  addSteppingFlags(addDraftFlags(command), 'problems').option(
    '-q, --quiet',
    'print answers and errors only: no progress, no notes, no warnings, no summary',
  );
  addVerboseFlag(command)
    .option('--json', 'print a line of JSON for each problem, in their order, and nothing else')
    .action(async (generator: string, _options: unknown, self: Command) => {
      await search(context, generator, self.opts<Flags>());
    });
  addSections(command, {
    'About the models': CHECKPOINT_HELP,
    'A file of problems': [
      'JSON lines: {"problem": "What is 2 + 2?", "answer": "4"}. Without answer nothing is graded. An id',
      '(or unique_id) names the problem; without one its place, from 0, does. Short texts and numbers',
      'beside them are written into the samples.',
    ],
    Methods: [
      'best-of-n  n samples; the answer is the one with the best score',
      'weighted   n samples; the answer is the class of equal answers with the greatest sum of scores',
      'majority   n samples; the answer that most of them have. It needs no verifier',
      'beam       n steps an iteration, of which the best n / width survive and have width children each',
      'dvts       beam search in n / width subtrees that know nothing of each other',
      'rebase     the better a path, the more children it has; all together n',
    ],
    'Memory and schedule': [
      'Both models lie side by side on each device. --memory-split 0.3 gives the generator 30 % of what',
      'is left for keys and values; by default memory moves to where it saves most time. --parallel',
      'dp=N has both models on each of N devices, and a problem stays on one. No result depends on it.',
    ],
    'What --out has': [
      'results_*.json and samples_*.jsonl as run writes them, for report and compare; a line of samples',
      'has the tree of its problem. The journal keeps problems as they end: after a kill, the same',
      'command with --resume goes on.',
    ],
    Examples: [
      EXAMPLE,
      'tilewright search my-model --verifier my-prm --problems math.jsonl --method beam --n 16 \\',
      '     --width 4 --iterations 40 --temperature 0.8 --seed 1 --out results',
      'tilewright search my-model --problems math.jsonl --method majority --n 32 --early-stop',
      'tilewright search my-model --verifier my-prm --task gsm8k --limit 100 --parallel dp=2 --json',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

/** The generator's share; undefined where memory moves by itself. Throws UsageError. */
function memorySplit(given: string | undefined): number | undefined {
  if (given === undefined || given === 'auto') return undefined;
  const share = /^(0?\.\d{1,9})$/.test(given) ? Number(given) : NaN;
  if (share > 0 && share < 1) return share;
  throw new UsageError(
    `--memory-split ${given}: expected auto, or a number between 0 and 1`,
    'for example: --memory-split 0.3, which leaves the verifier 0.7',
  );
}

function problemsOf(flags: Flags): SearchRequest['problems'] {
  const [path, name, dataRoot] = [text(flags, 'problems'), text(flags, 'task'), text(flags, 'dataRoot')];
  if (path !== undefined && name !== undefined)
    throw new UsageError('--problems and --task both say which problems there are', 'leave one of them out');
  if (name !== undefined) return { kind: 'set', name, dataRoot };
  if (path === undefined)
    throw new UsageError('there are no problems', `for example: ${EXAMPLE}\nor: --task minerva_math500, --task gsm8k`);
  if (dataRoot !== undefined)
    throw new UsageError('--data-root: a file of problems has no need of it', 'leave it out, or give --task NAME');
  return { kind: 'file', path };
}

function verifierOf(flags: Flags, method: string): SearchRequest['verifier'] {
  const [model, language, precision] = [
    text(flags, 'verifier'),
    text(flags, 'verifierKind'),
    text(flags, 'verifierPrecision'),
  ];
  if (model === undefined) {
    if (method !== 'majority')
      throw new UsageError(
        `--method ${method} needs a verifier`,
        `for example: ${EXAMPLE}\nor without one: --method majority`,
      );
    const given = [...(language === undefined ? [] : ['--verifier-kind'])];
    if (precision !== undefined) given.push('--verifier-precision');
    if (memorySplit(text(flags, 'memorySplit')) !== undefined) given.push('--memory-split');
    if (given.length > 0) throw new UsageError(`${given.join(', ')}: there is no verifier`, 'give it: --verifier DIR');
    return undefined;
  }
  return {
    model,
    ...defined({
      language: language && choice('--verifier-kind', language, VERIFIERS),
      precision: precision === undefined ? undefined : choice('--verifier-precision', precision, PRECISIONS),
    }),
  };
}

/** Everything that can be refused without looking at a file is refused before one is opened. */
async function parse(
  context: Context,
  model: string,
  flags: Flags,
): Promise<Omit<WithTargetChoice<SearchRequest>, 'signal'>> {
  const problems = problemsOf(flags);
  const options = await searchFlags(flags);
  const verifier = verifierOf(flags, options.method);
  const output = text(flags, 'out');
  const resume = isSet(flags, 'resume');
  if (resume && output === undefined)
    throw new UsageError('--resume needs the folder of the search that it continues', 'add --out DIR');
  const name = text(flags, 'modelName');
  if (name === '') throw new UsageError('--model-name is empty', 'for example: --model-name my-model');
  if (isArtifact(model)) refuseCompileFlags(flags, model);
  const [limit, atOnce] = [text(flags, 'limit'), text(flags, 'atOnce')];
  return {
    model,
    problems,
    options,
    resume,
    ...defined({
      verifier,
      output,
      modelName: name,
      resumeCommand: output === undefined ? undefined : sameCommand(context, ['--resume']),
      limit: limit === undefined ? undefined : wholeNumber('--limit', limit, 1, MAX_LIMIT, '100'),
      atOnce: atOnce === undefined ? undefined : wholeNumber('--at-once', atOnce, 1, MAX_AT_ONCE, '16'),
      memorySplit: memorySplit(text(flags, 'memorySplit')),
    }),
    ...draftFlags(flags),
    ...deviceFlags(flags),
    ...modelFlags(flags),
    ...adapterFlag(flags),
    ...artifactFlags(flags, model),
    threads: threads(flags, context.io),
  };
}

async function search(context: Context, model: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(model);
  const face = faceOf(flags);
  const { isJson, isQuiet, isVerbose } = face;
  const request = await parse(context, model, flags);
  const advice = (error: unknown): string => adviceOf(context, request, error);
  const failed: UserError[] = [];
  const print = inOrder((searched) => {
    if ('error' in searched) failed.push(new UserError(`problem ${searched.problem.id}: ${searched.error}`));
    if (isJson) printJsonLine(io, jsonOf(searched));
    else printText(io, `${lineOf(searched)}\n`);
  });
  const { value, stoppedBy } = await withUi(
    context,
    { ...face, advice, resultsIn: 'search', isStreamed: false },
    async (ui, signal) => {
      const story = await import('../commands/search.js');
      return story.search({ ...request, signal }, ui, print);
    },
  );
  for (const error of failed) {
    context.fail();
    printError(io, error, isJson);
  }
  if (value === undefined) throw new Stopped(stoppedBy ?? 'SIGINT', advice(undefined), undefined);
  if (!isJson && value.table !== '') printText(io, `${value.table}\n`);
  if (!isJson && !isQuiet) io.stderr.write(`${summaryOf(value, isVerbose)}\n`);
  if (stoppedBy !== undefined) throw new Stopped(stoppedBy, advice(undefined), undefined);
}

function adviceOf(context: Context, { output }: Pick<SearchRequest, 'output'>, error: unknown): string {
  if (output !== undefined && !(error instanceof StoppedEarly))
    return `finished problems are kept; go on with:\n  ${sameCommand(context, ['--resume'])}`;
  const kept = output === undefined ? 'nothing is kept without --out' : 'nothing was searched yet';
  return `${kept}; the same command starts again:\n  ${sameCommand(context)}`;
}

/** Problems in their order, whatever order they end in. */
function inOrder(print: (searched: SearchedProblem) => void): (searched: SearchedProblem) => void {
  const held = new Map<number, SearchedProblem>();
  let next = 0;
  return (searched) => {
    held.set(searched.index, searched);
    for (let first = held.get(next); first !== undefined; first = held.get(++next)) {
      held.delete(next);
      print(first);
    }
  };
}

function jsonOf(searched: SearchedProblem): Readonly<Record<string, unknown>> {
  const { id, problem, answer } = searched.problem;
  const of = { id, problem, ...defined({ answer }) };
  if ('error' in searched) return { ...of, error: searched.error };
  const { picked, candidates, drawnSteps, drawnTokens, notes } = searched.result;
  return {
    ...of,
    picked: picked === null ? null : (candidates[picked]?.text ?? null),
    candidates,
    drawn_steps: drawnSteps,
    drawn_tokens: drawnTokens,
    notes,
  };
}

const MAX_ID_WIDTH = 32;
const MAX_LINE = 160;

/** The id, and the end of the text that is picked: that is where the answer is. */
function lineOf(searched: SearchedProblem): string {
  const id = printableLine(cut(searched.problem.id, MAX_ID_WIDTH));
  if ('error' in searched) return `${id}: failed`;
  const { picked, candidates, notes } = searched.result;
  const [note] = notes;
  const said = note === undefined ? '' : ` (${note})`;
  const found = picked === null ? undefined : candidates[picked];
  if (found === undefined) return `${id}: no answer${said}`;
  const text = found.text.trim().replace(/\s+/g, ' ');
  const end = text.length <= MAX_LINE ? text : `… ${text.slice(-MAX_LINE)}`;
  return `${id}: ${printableLine(end)}${said}`;
}

/** `128 problems in 4 min 21 s: 1,763 problems/h`, and a line for each model. */
export function summaryOf(value: SearchSummary, isVerbose: boolean): string {
  const { problems, resumed, seconds, generator, verifier, samplesSha256, resultsPath, samplesPath } = value;
  const searched = problems - resumed;
  const rate = seconds > 0 ? `: ${count((3600 * searched) / seconds)} problems/h` : '';
  const before = resumed === 0 ? '' : `, ${count(resumed)} from the journal`;
  const models = [['generator', generator] as const, ...(verifier ? [['verifier', verifier] as const] : [])];
  return [
    `${counted(problems, 'problem')}${before}, in ${duration(seconds)}${rate}`,
    ...textTable(models.map(([name, work]) => rowOf(name, work, seconds, isVerbose))),
    ...(generator.drafts === undefined ? [] : draftSummary(generator.drafts, isVerbose)),
    `samples: SHA-256 ${samplesSha256}`,
    ...[resultsPath, samplesPath].flatMap((path) => (path === undefined ? [] : [`written: ${path}`])),
  ].join('\n');
}

function rowOf(name: string, work: ModelWork, seconds: number, isVerbose: boolean): readonly string[] {
  const { computedTokens, foundTokens, neededTokens, preemptions, peakPages, pages } = work;
  const times = computedTokens / (neededTokens ?? 0);
  const needed = Number.isFinite(times) ? `, ${times.toFixed(3)} × what scores need` : '';
  return [
    name,
    `${counted(computedTokens, 'token')} computed${needed}`,
    `${count(foundTokens)} found in pages`,
    `${count(seconds > 0 ? computedTokens / seconds : 0)} tokens/s`,
    preemptions === 0 ? '' : `computed again ${counted(preemptions, 'time')} for lack of memory`,
    ...(isVerbose ? [`${count(peakPages)} of ${count(pages)} pages`] : []),
  ];
}
