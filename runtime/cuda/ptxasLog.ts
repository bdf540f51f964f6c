/** The assembler's report about a kernel: `--ptxas-options=-v` of nvcc and NVRTC alike. */

/** What one kernel takes of a multiprocessor. Dynamic shared memory is not in it: the launch asks for that. */
export interface KernelResources {
  /** Per thread. */
  readonly registers: number;
  /** Statically declared bytes per block. */
  readonly sharedBytes: number;
  /** Bytes per thread: the stack frame holds arrays that are indexed at run time, and spilled registers. */
  readonly stackBytes: number;
  readonly spillStoreBytes: number;
  readonly spillLoadBytes: number;
}

const number = (pattern: RegExp, text: string): number => Number(pattern.exec(text)?.[1] ?? 0);

/** The resources of the entry function `symbol`; undefined where the log does not tell. */
export function parsePtxasLog(log: string, symbol: string): KernelResources | undefined {
  const lines = log.split('\n');
  const start = lines.findIndex((line) => /Compiling entry function '([^']*)'/.exec(line)?.[1] === symbol);
  if (start < 0) return undefined;
  let registers: number | undefined;
  let sharedBytes = 0,
    stackBytes = 0,
    spillStoreBytes = 0,
    spillLoadBytes = 0;
  for (let i = start + 1; i < lines.length; i++) {
    const line = lines[i] ?? '';
    if (line.includes('Compiling entry function')) break;
    if (/Function properties for (\S+)/.exec(line)?.[1] === symbol) {
      const properties = lines[i + 1] ?? '';
      stackBytes = number(/(\d+) bytes stack frame/, properties);
      spillStoreBytes = number(/(\d+) bytes spill stores/, properties);
      spillLoadBytes = number(/(\d+) bytes spill loads/, properties);
    }
    const used = /Used (\d+) registers/.exec(line);
    if (used !== null && registers === undefined) {
      registers = Number(used[1]);
      sharedBytes = number(/(\d+)(?:\+\d+)? bytes smem/, line);
    }
  }
  return registers === undefined ? undefined : { registers, sharedBytes, stackBytes, spillStoreBytes, spillLoadBytes };
}
