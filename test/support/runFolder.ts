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
// in a run. They take half of the time of a kernel. Where kernels compute little, -O1 saves a third of what is left;
// -Og saves no more, and doubles the time of a run.

const HEADERS = ['stdint.h', 'string.h', 'math.h', 'stdlib.h'];

/**
 * Headers are precompiled for the flags that decide what they mean. Where they do not fit, they are read as text. An
 * object is kept by its text, its headers, and how it is compiled: test files that run side by side compile the same
 * kernels, each for a cache of its own or before another has filled theirs.
 */
const script = (compiler: string, folder: string, optimization: string): string => `#!/bin/sh
for each; do
  shift
  case $each in -O3) set -- "$@" ${optimization} ;; *) set -- "$@" "$each" ;; esac
done
source= object= flags= last=
for each; do
  case $each in
    *.c) source=$each ;;
    -m* | -f* | -O* | -std=* | -pthread) flags="$flags $each" ;;
  esac
  case $last in -o) object=$each ;; esac
  last=$each
done
[ -n "$source" ] || exec ${compiler} "$@"
own='${folder}/'$(printf %s "$flags" | cksum | cut -d ' ' -f 1)
exec 9>> "$own.lock"
flock 9
if [ ! -e "$own" ]; then
  mkdir "$own.$$"
  cat > "$own.$$/headers.h" << 'END'
${HEADERS.map((name) => `#include <${name}>`).join('\n')}
#if defined(__AVX2__)
#include <immintrin.h>
#endif
END
  # Without precompiled headers, the text does.
  ${compiler} $flags -x c-header -o "$own.$$/headers.h.gch" "$own.$$/headers.h" 2> /dev/null 9>&-
  mv -T "$own.$$" "$own"
fi
exec 9>&-
case " $* " in
  *' -I. -c '*) ;;
  *) exec ${compiler} -include "$own/headers.h" "$@" ;;
esac
# Headers lie in the folder that it is compiled in.
kept='${folder}/'$( (printf '%s\n' "$*" && find . -name '*.h' | sort | xargs cat "$source") | sha256sum | cut -c 1-64)
exec 9>> "$kept.lock"
flock 9
if [ ! -e "$kept.o" ]; then
  ${compiler} -include "$own/headers.h" "$@" 9>&- || exit
  cp "$object" "$kept.$$" && mv "$kept.$$" "$kept.o"
else
  cp "$kept.o" "$object"
fi
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
