/** Runs the command itself as a process, from the repository or from the bundle. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The folder that holds dist, models and examples; tests run from dist/test/gpu. */
export const ROOT = join(import.meta.dirname, '..', '..', '..');
export const MAIN = join(ROOT, 'dist', 'cli', 'main.js');
export const DEMO = join(ROOT, 'models', 'demo');
export const EXAMPLES = join(ROOT, 'examples', 'everyday.jsonl');

export interface Ended {
  readonly status: number | null;
  readonly output: string;
}

/** Runs a program to its end. `output` is what it printed on both streams. */
export function start(program: string, args: readonly string[], timeoutSeconds: number): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: timeoutSeconds * 1000,
      cwd: ROOT,
    });
    const chunks: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.on('error', reject);
    child.on('close', (status, signal) => {
      const output = Buffer.concat(chunks).toString('utf8');
      resolve({
        status,
        output:
          signal === null
            ? output
            : `${output}\n[ended by ${signal}, perhaps for taking more than ${timeoutSeconds} s]`,
      });
    });
  });
}

/** Runs the command with Node. Throws what it printed if it fails. */
export async function tilewright(args: readonly string[], timeoutSeconds = 120): Promise<string> {
  const { status, output } = await start(process.execPath, [MAIN, ...args], timeoutSeconds);
  if (status !== 0)
    throw new Error(`tilewright ${args.join(' ')} ended with ${status ?? 'a signal'}:\n${output.slice(-2000)}`);
  return output;
}

/** The samples that a run wrote below its --out folder: text. */
export function readSamples(out: string): string {
  const name = readdirSync(out, { recursive: true, encoding: 'utf8' }).find((path) =>
    /samples_[^/]*\.jsonl$/.test(path),
  );
  if (name === undefined) throw new Error(`no samples below ${out}`);
  return readFileSync(join(out, name), 'utf8');
}
