/**
 * `npm run bench:drafts -- FILE…`: replays finished texts and compares drafters, without a model: tokens a call, rows a
 * call, acceptance by depth, and what a token costs the host. A draft is accepted where it is what came. Files are
 * samples_*.jsonl of tasks that generate, lines of `generate --json`, and lines with a prompt and a text or tokens.
 */
import { writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import type { Drafter } from '../draft/drafter.js';
import { NgramDrafter } from '../draft/ngram.js';
import { type FinishedText, type Replay, replay, rowsOfCall, tokensOfCall } from '../draft/simulate.js';
import { SuffixDrafter } from '../draft/suffix.js';
import { UserError } from '../errors.js';
import { openTokenizer } from '../models/tokenizer/tokenizer.js';
import { isRecord, parseJson } from '../system/json.js';
import { type FileWords, readLines } from '../system/lines.js';
import { count, counted, percent, textTable } from '../system/text.js';
import { benchCommand, decimal, list, oneOf, runProgram, text as textOption, whole } from './command.js';

const DRAFTERS: Readonly<Record<string, () => Drafter>> = {
  ngram: () => new NgramDrafter(),
  suffix: () => new SuffixDrafter(),
};
const WORDS: FileWords = { noun: 'file of texts', flag: 'FILE', item: 'text', command: 'generate --json' };
const MAX_TEXTS = 1 << 20;

/** A prompt and what came, each as text or tokens. */
interface RawText {
  readonly prompt: string | readonly number[];
  readonly output: string | readonly number[];
}

const isTokens = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.every((token) => typeof token === 'number' && Number.isInteger(token) && token >= 0);

const isPart = (value: unknown): value is string | readonly number[] => typeof value === 'string' || isTokens(value);

/** Texts of a line of samples: each request with each of its answers. Arguments are lists in older files. */
function textsOfSample(line: Readonly<Record<string, unknown>>): RawText[] {
  const { arguments: given, resps } = line;
  if (!Array.isArray(resps)) return [];
  const requests = Array.isArray(given) ? given : isRecord(given) ? Object.values(given) : [];
  return resps.flatMap((answers: unknown, i) => {
    const request: unknown = requests[i];
    const prompt: unknown = Array.isArray(request) ? request[0] : isRecord(request) ? request['arg_0'] : undefined;
    const all: readonly unknown[] = Array.isArray(answers) ? answers : [answers];
    return typeof prompt !== 'string'
      ? []
      : all.filter((answer) => typeof answer === 'string').map((output) => ({ prompt, output }));
  });
}

interface Fields {
  readonly promptField: string;
  readonly textField: string;
}

/** Throws UserError where a line has no text. */
function textsOfLine(line: string, where: string, fields: Fields): RawText[] {
  const value = parseJson(line, where);
  const hint = 'give lines with "prompt" and "text" or "tokens", or name other fields: --prompt-field, --text-field';
  if (!isRecord(value)) throw new UserError(`${where}: no JSON object`, hint);
  if ('resps' in value) {
    const texts = textsOfSample(value);
    if (texts.length === 0)
      throw new UserError(`${where}: a sample without generated texts`, 'name one of a task that generates');
    return texts;
  }
  const prompt = value[fields.promptField] ?? [];
  const output = value['tokens'] ?? value[fields.textField];
  if (!isPart(prompt) || !isPart(output)) throw new UserError(`${where}: no text, and no tokens`, hint);
  return [{ prompt, output }];
}

/** Texts of files, each once: samples have a line for each filter. Throws UserError. */
export async function readTexts(paths: readonly string[], fields: Fields, limit: number): Promise<RawText[]> {
  const texts = new Map<string, RawText>();
  for (const path of paths)
    for await (const { number, text } of readLines(path, WORDS)) {
      for (const each of textsOfLine(text, `${path}:${number}`, fields)) texts.set(JSON.stringify(each), each);
      if (texts.size > MAX_TEXTS) throw new UserError(`more than ${count(MAX_TEXTS)} texts`, 'take fewer: --limit N');
      if (texts.size >= limit) return [...texts.values()].slice(0, limit);
    }
  if (texts.size === 0) throw new UserError('there are no texts', `look at it: head ${paths.join(' ')}`);
  return [...texts.values()];
}

/** With the tokenizer of a model, or bytes. */
export async function tokensOf(texts: readonly RawText[], model: string | undefined): Promise<FinishedText[]> {
  const tokenizer = model === undefined ? undefined : openTokenizer(model);
  const encode = async (part: string | readonly number[], isPrompt: boolean): Promise<readonly number[]> => {
    if (typeof part !== 'string') return part;
    if (tokenizer === undefined) return [...Buffer.from(part)];
    return isPrompt ? tokenizer.encode(part) : tokenizer.encodeWritten(part);
  };
  const finished: FinishedText[] = [];
  for (const { prompt, output } of texts)
    finished.push({ prompt: await encode(prompt, true), output: await encode(output, false) });
  return finished;
}

export interface DraftsBenchOptions extends Fields {
  readonly model?: string;
  readonly drafters: readonly string[];
  readonly tokens: readonly number[];
  readonly beside: number;
  readonly limit: number;
  readonly temperature: number;
  readonly seed: number;
  readonly json?: string;
}

interface Row {
  readonly drafter: string;
  readonly most: number;
  readonly counts: Replay;
  /** Of this process, that of the replay included. */
  readonly cpuSeconds: number;
}

/** Least processor time of some replays: what other programs do to a machine is not what a drafter costs. */
const ROUNDS = 3;

function measure(texts: readonly FinishedText[], drafter: string, most: number, beside: number): Row {
  let row: Row | undefined;
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    const counts = replay(texts, DRAFTERS[drafter]!(), { tokens: most, beside });
    const { user, system } = process.cpuUsage(before);
    const cpuSeconds = (user + system) / 1e6;
    row = { drafter, most, counts, cpuSeconds: Math.min(cpuSeconds, row?.cpuSeconds ?? Infinity) };
  }
  return row!;
}

const shares = ({ drafted, accepted }: Replay): string =>
  [1, 2, 4, 8]
    .filter((depth) => (drafted[depth - 1] ?? 0) > 0)
    .map((depth) => percent((accepted[depth - 1] ?? 0) / drafted[depth - 1]!, 0).replace(' %', ''))
    .join(' ');

const sum = (counts: readonly number[]): number => counts.reduce((total, each) => total + each, 0);

/** A line for each drafter and length. */
export function draftsTable(rows: readonly Row[]): string[] {
  return textTable(
    [
      ['drafter', 'drafts', 'tokens a call', 'rows a call', 'accepted', '% at 1 2 4 8', 'µs a token'],
      ...rows.map(({ drafter, most, counts, cpuSeconds }) => [
        drafter,
        `${most}`,
        tokensOfCall(counts).toFixed(2),
        rowsOfCall(counts).toFixed(2),
        sum(counts.drafted) === 0 ? '-' : percent(sum(counts.accepted) / sum(counts.drafted)),
        shares(counts),
        ((cpuSeconds / counts.tokens) * 1e6).toFixed(1),
      ]),
    ],
    new Set([1, 2, 3, 4, 6]),
  );
}

async function main(options: DraftsBenchOptions, [operand]: readonly unknown[]): Promise<void> {
  const paths = (Array.isArray(operand) ? operand : [operand]).map(String);
  const { model, beside, temperature, seed, json } = options;
  const texts = await tokensOf(await readTexts(paths, options, options.limit), model);
  const drawn =
    temperature === 0 ? texts : texts.map((text) => ({ ...text, sampling: { temperature, seed: BigInt(seed) } }));
  const rows = options.drafters.flatMap((drafter) =>
    options.tokens.map((most) => measure(drawn, drafter, most, beside)),
  );
  const prompts = texts.reduce((total, { prompt }) => total + prompt.length, 0);
  const outputs = texts.reduce((total, { output }) => total + output.length, 0);
  const unit = model === undefined ? 'bytes' : 'tokens';
  const sizes = `${count(prompts)} ${unit} of prompts, ${count(outputs)} of outputs`;
  console.log(`${counted(texts.length, 'text')}, ${sizes}, ${beside} beside`);
  console.log(draftsTable(rows).join('\n'));
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(rows, undefined, 1)}\n`);
}

export const draftsBenchCommand = (): Command =>
  benchCommand('bench:drafts', 'Replay finished texts and compare drafters, without a model')
    .argument('<files...>', 'samples_*.jsonl, lines of generate --json, or lines with "prompt" and "text" or "tokens"')
    .option('--model <dir>', 'a checkpoint whose tokenizer makes tokens of texts (default: bytes)', textOption)
    .option('--drafters <list>', 'drafters to compare', list(oneOf(Object.keys(DRAFTERS))), Object.keys(DRAFTERS))
    .option('--tokens <list>', 'most drafts of a call', list(whole(1, 15)), [1, 3, 5, 7, 15])
    .option('--beside <n>', 'texts that are written side by side', whole(1, 4096), 8)
    .option('--limit <n>', 'at most so many texts', whole(1, MAX_TEXTS), MAX_TEXTS)
    .option('--prompt-field <name>', 'the field of a prompt', textOption, 'prompt')
    .option('--text-field <name>', 'the field of a text', textOption, 'text')
    .option(
      '--temperature <t>',
      'what texts of generate --json with prompts in tokens were drawn with',
      decimal(0, 100),
      0,
    )
    .option('--seed <n>', 'their seed', whole(0, Number.MAX_SAFE_INTEGER), 0)
    .option('--json <file>', 'write all counts', textOption);

await runProgram(import.meta.url, draftsBenchCommand, main);
