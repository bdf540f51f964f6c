/**
 * Runs shell commands in parallel: `node scripts/inParallel.mjs COMMAND COMMAND...` The output of each command is
 * printed in one piece when it ends. Fails if any of them fails.
 */
import { spawn } from 'node:child_process';

const statuses = await Promise.all(
  process.argv.slice(2).map(
    (command) =>
      new Promise((resolve) => {
        const child = spawn(command, { shell: true, stdio: ['ignore', 'pipe', 'pipe'] });
        const output = [];
        for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => output.push(chunk));
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
