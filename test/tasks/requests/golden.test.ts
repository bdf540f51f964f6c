/** Prompts, continuations and documents of real tasks, byte for byte those of the public harness's own code. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { dumpJson, str } from '../../../python/show.js';
import { readSplit } from '../../../tasks/data/splits.js';
import { TaskLibrary } from '../../../tasks/definition/library.js';
import { tasksBelow } from '../../../tasks/definition/settings.js';
import { buildRequests, type Request } from '../../../tasks/requests/task.js';
import { isThorough } from '../../support/thorough.js';

const SHARED = fileURLToPath(new URL('../../../../shared/', import.meta.url));
const isAbsent = !existsSync(join(SHARED, 'golden/requests'));
if (isAbsent) process.stderr.write(`SKIPPED test/tasks/requests/golden: ${SHARED} is absent\n`);

interface Golden {
  readonly task: string;
  readonly doc_id: number;
  readonly arguments: readonly unknown[];
  readonly target: unknown;
  readonly doc_hash: string;
  readonly target_hash: string;
}
interface Run {
  readonly tasks: readonly string[];
  readonly num_fewshot: number | null;
  readonly limit: number | null;
  readonly system_instruction?: string;
  readonly apply_chat_template?: boolean;
  readonly fewshot_as_multiturn?: boolean;
}

const RUNS = [
  'mmlu_0shot',
  'mmlu_5shot',
  'mmlu_abstract_algebra_system_2shot',
  'mmlu_abstract_algebra_chat_2shot',
  'mmlu_abstract_algebra_turns_2shot',
  'arc_challenge_0shot',
  'arc_challenge_5shot',
  'arc_challenge_25shot',
  'arc_challenge_chat_0shot',
  'arc_challenge_chat_turns_0shot',
  'truthfulqa_mc1_0shot',
  'truthfulqa_mc2_0shot',
  'truthfulqa_mc1_5shot_asked',
  'gsm8k_5shot',
  'gsm8k_default',
  'gsm8k_turns_2shot',
  'gsm8k_cot_8shot',
  'leaderboard_bbh_3shot',
  'bbh_fewshot_3shot',
  'bbh_cot_fewshot_3shot',
];

/** The template of the golden runs: a message that an answer continues has no end. */
function render(messages: readonly { role: string; content: string }[], opensAnswer: boolean): string {
  const text = messages.map(({ role, content }) => `<|${role}|>${content}<|end|>`).join('');
  return opensAnswer ? `${text}<|assistant|>` : text.slice(0, -'<|end|>'.length);
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function argumentsOf(request: Request): unknown[] {
  if (request.kind === 'loglikelihood') return [request.context, request.continuation];
  if (request.kind === 'loglikelihood_rolling') return [request.text];
  return [request.context, JSON.parse(dumpJson(request.settings))];
}

describe.skipIf(isAbsent)('requests of lm-evaluation-harness', () => {
  const folder = new TaskLibrary([join(SHARED, 'data/lm_eval_tasks')]);
  const metrics = JSON.parse(readFileSync(join(SHARED, 'golden/requests/metrics.json'), 'utf8')) as {
    readonly runs: Readonly<Record<string, Run>>;
  };

  /** Of many subjects, or with shots that others have too. */
  const LONG = ['mmlu_5shot', 'mmlu_0shot', 'arc_challenge_5shot', 'gsm8k_default'];
  it.each(isThorough ? RUNS : RUNS.filter((name) => !LONG.includes(name)))('of %s are equal', async (name) => {
    const run = metrics.runs[name]!;
    const lines = gunzipSync(readFileSync(join(SHARED, 'golden/requests', `${name}.jsonl.gz`)))
      .toString('utf8')
      .trim();
    const expected = lines.split('\n').map((line) => JSON.parse(line) as Golden);
    const made = new Map<string, unknown>();
    for (const { name: task, settings } of tasksBelow(run.tasks.flatMap((each) => folder.resolve(each)))) {
      const read = readSplit.bind(undefined, join(SHARED, 'data/hub'));
      const built = await buildRequests(settings, read, {
        shots: run.num_fewshot ?? undefined,
        limit: run.limit ?? undefined,
        systemInstruction: run.system_instruction,
        chat: run.apply_chat_template === true ? { render, isMultiturn: run.fewshot_as_multiturn === true } : undefined,
      });
      for (const { docId, document, target, requests } of built)
        made.set(`${task} ${docId}`, {
          arguments: requests.map(argumentsOf),
          doc_hash: sha256(dumpJson(document)),
          target_hash: sha256(str(target)),
        });
    }
    expect(made.size).toBe(expected.length);
    for (const { task, doc_id, arguments: asked, doc_hash, target_hash } of expected)
      expect(made.get(`${task} ${doc_id}`), `${task} ${doc_id}`).toEqual({ arguments: asked, doc_hash, target_hash });
  });
});
