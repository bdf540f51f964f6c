/**
 * Runs shell commands in parallel: `node scripts/inParallel.mjs COMMAND [--live] COMMAND...` The output of each command
 * is printed in one piece when it ends, that of the one behind --live as it comes. Fails if any of them fails.
 */
import { spawn } from 'node:child_process';

const LIVE = '--live';
const given = process.argv.slice(2);
const commands = given.filter((each) => each !== LIVE);
const live = given.includes(LIVE) ? given[given.indexOf(LIVE) + 1] : undefined;

const statuses = await Promise.all(
  commands.map(
    (command) =>
      new Promise((resolve) => {
        const stdio = command === live ? 'inherit' : 'pipe';
        const child = spawn(command, { shell: true, stdio: ['ignore', stdio, stdio] });
        const output = [];
        for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => output.push(chunk));
        child.on('error', (error) => {
          output.push(Buffer.from(`${error.message}\n`));
        });
        child.on('close', (status, signal) => {
          process.stderr.write(Buffer.concat(output));
          if (status !== 0) process.stderr.write(`failed (${signal ?? `status ${status}`}): ${command}\n`);
          resolve(status);
        });
      }),
  ),
);
process.exitCode = statuses.every((status) => status === 0) ? 0 : 1;
