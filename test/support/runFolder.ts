/** The folder of one run of all tests: caches of compiled kernels, which test files share, and temporary folders. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * The folder of the run whose main process is `pid`; test files run in its children. globalSetup.ts creates and removes
 * it.
 */
export const runFolder = (pid: number = process.ppid): string => join(tmpdir(), `tilewright-tests-${pid}`);

// A C compiler for tests: the system's, with the same flags, but the headers of generated kernels are compiled once
// in a run. They take half of the time of a kernel. Where kernels compute little, -O1 saves a third of what is left.

const HEADERS = ['stdint.h', 'string.h', 'math.h', 'stdlib.h'];

/** Headers are precompiled for the flags that decide what they mean. Where they do not fit, they are read as text. */
const script = (compiler: string, folder: string, optimization: string): string => `#!/bin/sh
for each; do
  shift
  case $each in -O3) set -- "$@" ${optimization} ;; *) set -- "$@" "$each" ;; esac
done
compiles= flags=
for each; do
  case $each in
    *.c) compiles=1 ;;
    -m* | -f* | -O* | -std=* | -pthread) flags="$flags $each" ;;
  esac
done
[ -n "$compiles" ] || exec ${compiler} "$@"
own='${folder}/'$(printf %s "$flags" | cksum | cut -d ' ' -f 1)
if [ ! -e "$own" ]; then
  mkdir "$own.$$"
  cat > "$own.$$/headers.h" << 'END'
${HEADERS.map((name) => `#include <${name}>`).join('\n')}
#if defined(__AVX2__)
#include <immintrin.h>
#endif
END
  # Without precompiled headers, the text does.
  ${compiler} $flags -x c-header -o "$own.$$/headers.h.gch" "$own.$$/headers.h" 2> /dev/null
  mv -T "$own.$$" "$own" 2> /dev/null || rm -rf "$own.$$"
fi
exec ${compiler} -include "$own/headers.h" "$@"
`;

const NAMES = ['cc', 'gcc', 'clang'];

/**
 * Path of the compiler, in the folder that the files of one run share; undefined where the system has none.
 * `optimization` replaces -O3: the bits of results do not depend on it.
 */
export function quickCc(optimization: '-O1' | '-O3' = '-O3'): string | undefined {
  const folder = join(runFolder(), 'quick-cc');
  const path = join(folder, `cc${optimization}`);
  if (existsSync(path)) return path;
  const compiler = NAMES.find((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0);
  if (compiler === undefined) return undefined;
  mkdirSync(folder, { recursive: true });
  const own = `${path}-${process.pid}`;
  writeFileSync(own, script(compiler, folder, optimization));
  chmodSync(own, 0o755);
  renameSync(own, path);
  return path;
}
