/** Every setting that comes from the environment: the only reader of process.env. */
import { homedir } from 'node:os';
import { join } from 'node:path';

export interface Settings {
  /** TILEWRIGHT_CC: C compiler for generated kernels; otherwise cc, gcc and clang are looked for on PATH. */
  readonly cc: string | undefined;
  /** TILEWRIGHT_CACHE: folder of compiled kernels; otherwise tilewright under XDG_CACHE_HOME or ~/.cache. */
  readonly cacheDir: string;
  /** PATH: where compilers are looked for. */
  readonly path: string;
  /** TILEWRIGHT_DEBUG: any value but 0 prints the stack of an unexpected error. */
  readonly isDebug: boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** An empty variable counts as unset. */
function text(environment: Environment, name: string): string | undefined {
  const value = environment[name];
  return value === undefined || value === '' ? undefined : value;
}

/** Reads the settings now; tests pass an environment of their own. */
export function readSettings(environment: Environment = process.env): Settings {
  return {
    cc: text(environment, 'TILEWRIGHT_CC'),
    cacheDir: text(environment, 'TILEWRIGHT_CACHE')
      ?? join(text(environment, 'XDG_CACHE_HOME') ?? join(homedir(), '.cache'), 'tilewright'),
    path: text(environment, 'PATH') ?? '',
    isDebug: (text(environment, 'TILEWRIGHT_DEBUG') ?? '0') !== '0',
  };
}
