/** `--shard`: which part of a run this process is, as typed or as the scheduler that started it says. */
import { UsageError } from '../errors.js';
import { MAX_SHARDS, type Shard, shardName } from '../evaluate/shardName.js';
import type { Settings, SlurmArray } from '../settings.js';
import type { Flags } from './options.js';

const EXAMPLE = 'for example: --shard 1/4 (to 4/4)';

function parse(given: string): Shard {
  const match = /^(\d{1,9})\/(\d{1,9})$/.exec(given);
  if (match === null) throw new UsageError(`--shard ${given}: expected which part of how many`, EXAMPLE);
  const [index, count] = [Number(match[1]), Number(match[2])];
  if (count < 1 || count > MAX_SHARDS)
    throw new UsageError(`--shard ${given}: expected 1 to ${MAX_SHARDS} parts`, EXAMPLE);
  if (index < 1 || index > count)
    throw new UsageError(
      `--shard ${given}: parts count from 1, so this is none of 1/${count} to ${count}/${count}`,
      EXAMPLE,
    );
  return { index, count };
}

const explicit = 'Say which part this process is: --shard i/n';

/** A whole number that a scheduler set. */
function whole(name: string, given: string | undefined): number {
  if (given === undefined || !/^\d{1,9}$/.test(given)) {
    throw new UsageError(
      `--shard: ${name} is ${given === undefined ? 'not set' : `${JSON.stringify(given)}, not a whole number`}`,
      explicit,
    );
  }
  return Number(given);
}

/**
 * Arrays count from any number and in any step; what is left out of them would be a part of the run that nobody scores.
 */
function ofArray({ id, count, min, max, step }: SlurmArray): Shard {
  const [first, last, by] = [
    whole('SLURM_ARRAY_TASK_MIN', min),
    whole('SLURM_ARRAY_TASK_MAX', max),
    Math.max(1, whole('SLURM_ARRAY_TASK_STEP', step ?? '1')),
  ];
  const tasks = whole('SLURM_ARRAY_TASK_COUNT', count),
    task = whole('SLURM_ARRAY_TASK_ID', id);
  const index = (task - first) / by + 1;
  if ((last - first) / by + 1 !== tasks || !Number.isInteger(index) || index < 1) {
    throw new UsageError(
      `--shard: this Slurm array has ${tasks} tasks from ${first} to ${last}: ` +
        'which parts of which run they are cannot be told',
      `${explicit}, or requeue a task of the whole array: scontrol requeue JOB_TASK`,
    );
  }
  return { index, count: tasks };
}

/** The part that the environment names; undefined where no scheduler set anything. */
function ofScheduler({ slurmArray, slurmTask, jobCompletionIndex, shards }: Settings): Shard | undefined {
  if (slurmArray !== undefined) return ofArray(slurmArray);
  if (jobCompletionIndex !== undefined) {
    return {
      index: whole('JOB_COMPLETION_INDEX', jobCompletionIndex) + 1,
      count: whole('TILEWRIGHT_SHARDS, which is to be the completions of the Job,', shards),
    };
  }
  if (slurmTask !== undefined)
    return { index: whole('SLURM_PROCID', slurmTask.id) + 1, count: whole('SLURM_NTASKS', slurmTask.count) };
  return undefined;
}

/** The shard that --shard asks for; undefined without it. Throws UserError. */
export function shard(flags: Flags, settings: Settings): Shard | undefined {
  const given = flags['shard'];
  if (given === undefined || given === false) return undefined;
  if (typeof given === 'string') return parse(given);
  const found = ofScheduler(settings);
  if (found === undefined)
    throw new UsageError(
      '--shard: no scheduler says which part this is ' +
        '(SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX and SLURM_PROCID are not set)',
      EXAMPLE,
    );
  if (settings.shards !== undefined && whole('TILEWRIGHT_SHARDS', settings.shards) !== found.count) {
    throw new UsageError(
      `--shard: the scheduler started ${found.count} tasks, TILEWRIGHT_SHARDS says ${settings.shards}`,
      explicit,
    );
  }
  return parse(shardName(found));
}
