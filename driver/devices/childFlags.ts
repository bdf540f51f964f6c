/** Node's own flags for a device process. */

/**
 * Flags that mean the same for any program: memory, code generation, warnings, and what resolves and loads modules.
 * Flags about the parent's program (`--input-type=module -e`), its debugger or its tests would break or stop a child.
 */
const ALONE = new Set([
  '--max-old-space-size',
  '--max-semi-space-size',
  '--stack-size',
  '--no-opt',
  '--jitless',
  '--expose-gc',
  '--enable-source-maps',
  '--no-warnings',
  '--disable-warning',
  '--trace-warnings',
  '--trace-uncaught',
  '--preserve-symlinks',
]);
const WITH_VALUE = new Set(['--import', '--require', '-r', '--loader', '--experimental-loader', '--conditions', '-C']);

/** Those of a process's `execArgv` that its children may have. */
export function childFlags(execArgv: readonly string[]): string[] {
  const flags: string[] = [];
  for (let i = 0; i < execArgv.length; i++) {
    const flag = execArgv[i]!;
    const name = flag.split('=', 1)[0]!;
    const value = execArgv[i + 1];
    if (WITH_VALUE.has(flag)) {
      if (value !== undefined) flags.push(flag, value);
      i++;
    } else if (ALONE.has(name) || WITH_VALUE.has(name)) flags.push(flag);
  }
  return flags;
}
