/** What the flags of `tilewright run` ask for. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  BASELINES,
  PREFIXES,
  type RunRequest,
  type RunResult,
  type ScoreRequest,
  type TasksRequest,
} from '../commands/runRequest.js';
import { isArtifact, modelName } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { UsageError } from '../errors.js';
import { FILE_TASKS } from '../evaluate/fileTasks.js';
import { modelFolder } from '../evaluate/output.js';
import { OVERLONG } from '../evaluate/pathLengths.js';
import { parseDocs, parseLimit } from '../evaluate/selection.js';
import { readSettings } from '../settings.js';
import { defined } from '../system/defined.js';
import { nearest } from '../system/text.js';
import { prepareFile } from '../system/write.js';
import { draftFlags } from './draftFlags.js';
import { choice, type Flags, isSet, required, sharing, text, threads } from './options.js';
import { adapterFlag } from './adapterFlags.js';
import { artifactFlags, deviceFlags, modelFlags, refuseCompileFlags } from './modelFlags.js';
import { shard } from './shard.js';
import { refuseMixed, resultsFolderOf, taskRequest } from './taskFlags.js';
import { type Context, sameCommand } from './work.js';

export const TASK_NAMES = FILE_TASKS.map(({ name }) => name);
export const EXAMPLE = 'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl';

/** Other tasks are asked for with another flag. */
function knownTask(given: string): (typeof TASK_NAMES)[number] {
  if (nearest(given, TASK_NAMES) === undefined)
    throw new UsageError(
      `--task ${given}: expected ${TASK_NAMES.slice(0, -1).join(', ')} or ${TASK_NAMES.at(-1)!}`,
      `tasks of the harness have another flag: --tasks ${given} (tilewright tasks lists them)`,
    );
  return choice('--task', given, TASK_NAMES);
}

/** Compiling again replaces an artifact's folder: results in it would go with it. */
function refuseArtifactFolder(output: string, name: string): void {
  const folder = [output, modelFolder(output, name)].find(isArtifact);
  if (folder !== undefined)
    throw new UsageError(
      `--out ${output}: the results would go into the artifact ${folder}, and be lost when it is compiled again`,
      'give another folder, for example: --out results',
    );
}

type Parsed = Omit<WithTargetChoice<RunRequest>, 'signal'> | Omit<WithTargetChoice<TasksRequest>, 'signal'>;

/** Everything that can be refused without looking at a file is refused before one is opened. */
export function parseRun(context: Context, model: string, flags: Flags): Parsed {
  refuseMixed(flags);
  refuseReport(flags);
  const docs = text(flags, 'docs');
  const asked =
    flags['tasks'] === undefined
      ? {
          task: knownTask(
            required(flags, 'task', '--task', `${EXAMPLE}\nor: --tasks NAMES, which tilewright tasks lists`),
          ),
          data: required(flags, 'data', '--data', EXAMPLE),
          ...defined({ docs: docs === undefined ? undefined : parseDocs(docs) }),
        }
      : {
          ...taskRequest(flags),
          ...defined({ saysMaxTokens: flags['maxTokens'] === undefined ? undefined : true }),
        };
  const [name, limit, output, trace] = [
    text(flags, 'modelName'),
    text(flags, 'limit'),
    resultsFolderOf(flags),
    text(flags, 'trace'),
  ];
  if (name === '') throw new UsageError('--model-name is empty', 'for example: --model-name my-model');
  const resume = isSet(flags, 'resume');
  if (resume && output === undefined)
    throw new UsageError(
      '--resume needs --out: the journal of the interrupted run is there',
      'add --out with the folder of that run',
    );
  const part = shard(flags, readSettings());
  if (part !== undefined && output === undefined)
    throw new UsageError(
      '--shard needs --out: merge joins what the shards write there',
      'add --out shards, the same for all',
    );
  const logsTokens = isSet(flags, 'logTokens');
  if (logsTokens && (output === undefined || part !== undefined || flags['logSamples'] === 'false'))
    throw new UsageError(
      '--log-tokens writes beside samples_*.jsonl of a whole run',
      'it needs --out, and neither --shard nor --log_samples false',
    );
  const request = {
    model,
    resume,
    sharing: sharing(flags),
    prefixes: choice('--prefixes', text(flags, 'prefixes') ?? 'auto', PREFIXES),
    overlong: choice('--overlong', text(flags, 'overlong') ?? 'truncate', OVERLONG),
    ...defined({ modelName: name }),
    resumeCommand: sameCommand(context, ['--resume']),
    ...modelFlags(flags),
    ...adapterFlag(flags),
    ...artifactFlags(flags, model),
    ...deviceFlags(flags),
    ...draftFlags(flags),
    ...defined({ limit: limit === undefined ? undefined : parseLimit(limit) }),
    ...defined({ output, trace }),
    ...(logsTokens ? { logsTokens } : {}),
    ...defined({ shard: part }),
    ...comparedWith(text(flags, 'compareWith')),
    ...(isSet(flags, 'dryRun') ? { isDryRun: true } : {}),
  };
  if (isArtifact(model)) refuseCompileFlags(flags, model, ['cacheTokens']);
  if (output !== undefined) refuseArtifactFolder(output, name ?? modelName(model));
  return { ...asked, ...request, threads: threads(flags, context.io) };
}

/** A page is made of the files of a run. */
function refuseReport(flags: Flags): void {
  if (flags['report'] === undefined) return;
  if (isSet(flags, 'dryRun')) throw new UsageError('--dry-run computes nothing to report', 'leave --report out');
  if (resultsFolderOf(flags) === undefined)
    throw new UsageError('--report needs --out: the page is made of the files there', 'add --out results');
}

/** Where the page goes, and whether that can be written is found out before the run. */
export function reportPath(flags: Flags): ((result: RunResult) => string) | undefined {
  const file = text(flags, 'report');
  if (file !== undefined) prepareFile(file);
  if (file === undefined && !isSet(flags, 'report')) return undefined;
  return ({ resultsPath }) => file ?? join(dirname(resultsPath!), 'report.html');
}

/** A word for an arithmetic, or a folder; ./f32 is a folder of that name. */
function comparedWith(given: string | undefined): Pick<ScoreRequest, 'compareWith'> {
  if (given === undefined) return {};
  const precision = BASELINES.find((each) => each === given);
  if (precision !== undefined) return { compareWith: { kind: 'precision', precision } };
  if (!existsSync(given))
    throw new UsageError(
      `--compare-with ${given}: there is no such folder`,
      `give the folder of an earlier run, or one of ${BASELINES.join(', ')}`,
    );
  return { compareWith: { kind: 'results', path: given } };
}
