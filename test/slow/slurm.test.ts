/**
 * The script of docs/scaling.md on a Slurm of one node, started here: an array, a task that is requeued while it
 * scores, and the merge.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { hostname, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readSettings } from '../../settings.js';
import { hasSlurm, SLURM_PATH } from '../support/slurm.js';
import { questions, writeCheckpoint, writeData } from '../e2e/smallModel.js';
import {
  CACHE,
  filesOf,
  isBuilt,
  MAIN,
  ROOT,
  runArguments,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  warmCache,
} from '../e2e/support.js';

const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer()
      .on('error', reject)
      .listen(0, '127.0.0.1', () => {
        const address = server.address();
        server.close(() => {
          resolve(typeof address === 'object' && address !== null ? address.port : 0);
        });
      });
  });

/** No accounts, no keys, no cgroups: only processes of this user on this machine. */
const configuration = (folder: string, host: string, user: string, ports: readonly number[]): string => `
ClusterName=test
SlurmctldHost=${host}(127.0.0.1)
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=${user}
SlurmdUser=${user}
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
StateSaveLocation=${folder}/state
SlurmdSpoolDir=${folder}/spool
SlurmctldPidFile=${folder}/slurmctld.pid
SlurmdPidFile=${folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=${host} NodeAddr=127.0.0.1 CPUs=3 State=UNKNOWN
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`;

/** The first code block in this language in the documentation that contains a text. */
function scriptOf(document: string, language: string, text: string): string {
  const blocks = [
    ...readFileSync(join(ROOT, 'docs', document), 'utf8').matchAll(
      new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, 'gm'),
    ),
  ];
  return blocks.map(([, body = '']) => body).find((body) => body.includes(text)) ?? '';
}

describe.skipIf(!isBuilt || !hasSlurm)('a Slurm array', () => {
  const folder = temporaryFolder();
  const daemons: ChildProcess[] = [];
  const model = writeCheckpoint();
  const data = writeData(questions(1000));
  const bin = join(folder, 'bin');
  const environment = (): Record<string, string> => ({
    PATH: `${bin}:${readSettings().path}:${SLURM_PATH}`,
    SLURM_CONF: join(folder, 'slurm.conf'),
    HOME: folder,
    TILEWRIGHT_CACHE: CACHE,
    MODEL: model,
    DATA: data,
    TASK: 'multiple_choice',
    OUT: join(folder, 'shards'),
  });
  const slurm = (program: string, ...args: string[]): string => {
    const { status, stdout, stderr } = spawnSync(program, args, {
      cwd: folder,
      env: environment(),
      encoding: 'utf8',
      timeout: 240_000,
    });
    expect(status, `${program} ${args.join(' ')}: ${stderr}`).toBe(0);
    return stdout.trim();
  };
  const until = async (what: string, isSo: () => boolean, seconds = 240): Promise<void> => {
    const end = performance.now() + seconds * 1000;
    while (!isSo()) {
      if (performance.now() > end) {
        const logs = ['slurmctld.log', 'slurmd.log'].map((name) =>
          readFileSync(join(folder, name), 'utf8').slice(-2000),
        );
        throw new Error([`${what}: not within ${seconds} s`, ...logs].join('\n'));
      }
      await sleep(50);
    }
  };

  beforeAll(async () => {
    for (const name of ['state', 'spool', 'bin']) mkdirSync(join(folder, name));
    // One small micro-batch size for all, so that a task takes long enough to be requeued.
    writeFileSync(
      join(bin, 'tilewright'),
      `#!/bin/sh\ncommand=$1; shift\n[ "$command" = run ] && set -- "$@" --batch-tokens 96\nexec '` +
        `${process.execPath}' '${MAIN}' "$command" "$@"\n`,
    );
    chmodSync(join(bin, 'tilewright'), 0o755);
    const host = hostname().split('.')[0] ?? 'localhost';
    writeFileSync(
      join(folder, 'slurm.conf'),
      configuration(folder, host, userInfo().username, [await freePort(), await freePort()]),
    );
    for (const name of ['slurmctld', 'slurmd']) {
      const daemon = spawn('/bin/sh', ['-c', `exec ${name} -D >${name}.log 2>&1`], {
        cwd: folder,
        env: environment(),
        stdio: 'ignore',
      });
      daemons.push(daemon);
    }
    await warmCache(model, '--batch-tokens', '96');
    await until(
      'an idle node',
      () => spawnSync('sinfo', ['-h', '-o', '%t'], { env: environment(), encoding: 'utf8' }).stdout.trim() === 'idle',
    );
  });
  afterAll(async () => {
    // Slurm ends its jobs first, because they are not children of this process.
    spawnSync('scancel', ['--user', userInfo().username], { env: environment() });
    for (const daemon of daemons.reverse()) {
      if (daemon.exitCode !== null) continue;
      const ended = new Promise((resolve) => daemon.on('exit', resolve));
      daemon.kill('SIGTERM');
      await Promise.race([ended, sleep(5000).then(() => daemon.kill('SIGKILL'))]);
    }
  });

  test('of three tasks, one requeued while it scores, merges to the whole run', async () => {
    const script = scriptOf('scaling.md', 'bash', '#SBATCH --array');
    expect(script).toMatch(/--open-mode=append\n[^]*--shard --resume\n$/);
    writeFileSync(join(folder, 'shards.sh'), script);
    const id = slurm('sbatch', '--parsable', '--array=1-3', '--cpus-per-task=1', 'shards.sh');
    const log = (task: number): string => {
      const path = join(folder, `tilewright_${id}_${task}.log`);
      return existsSync(path) ? readFileSync(path, 'utf8') : '';
    };
    const second = join(folder, 'shards', 'small', 'shard-2-of-3');
    const hasAnswers = (journal: string): boolean => statSync(journal).size > 1500;
    await until('a journal of task 2', () => filesOf(second, 'journal').some(hasAnswers));
    slurm('scontrol', 'requeue', `${id}_2`);
    const merging = slurm(
      'sbatch',
      '--parsable',
      `--dependency=afterok:${id}`,
      '--output=merge.log',
      '--wrap',
      `tilewright merge '${join(folder, 'shards')}' --out '${join(folder, 'results')}'`,
    );
    expect(merging).toMatch(/^\d+$/);
    await until('the end of all jobs', () => slurm('squeue', '-h') === '', 150);

    expect(log(2), 'the log of both of its starts').toMatch(/[1-9]\d* questions taken over from/);
    expect(log(2).match(/open model/g)).toHaveLength(2);
    for (const task of [1, 2, 3]) expect(log(task)).toContain(`shard ${task}/3; when all are done:`);
    expect(readFileSync(join(folder, 'merge.log'), 'utf8')).toContain('1,000 questions of 3 shards');
    const whole = join(folder, 'whole');
    success(await tilewright(runArguments(model, data, '--batch-tokens', '96', '--out', whole)));
    expect(textOf(join(folder, 'results'), 'samples')).toBe(textOf(whole, 'samples'));
    // Task 2 may have finished before the order to stop it came: its second start then writes the same results again.
    expect(new Set(filesOf(join(folder, 'shards'), 'results').map(dirname)).size).toBe(3);
  });
});
