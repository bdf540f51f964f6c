/**
 * Machine code that an artifact carries, for hosts that have no compiler. Nothing can tell what it does: it is run only
 * where its user says so, and only where kernels cannot be compiled from the verified graph.
 */
import { createHash } from 'node:crypto';
import { MissingCompiler, UserError } from '../../errors.js';
import type { SourceText } from '../../runtime/cpu/compileError.js';

/** Machine code that was just compiled, as an artifact may carry it. */
export interface CompiledCode {
  /** What it runs on: `avx512 linux-x64`, `sm_90a`. Other machines refuse it. */
  readonly machine: string;
  /** For people, without paths. */
  readonly compiler: string;
  /** All that was compiled. */
  readonly units: readonly SourceText[];
  readonly files: readonly { readonly name: string; readonly bytes: Uint8Array }[];
}

/** Machine code of an artifact. Each of its functions throws UserError. */
export interface PackedCode {
  /** The user lets it run. */
  readonly isTrusted: boolean;
  /** For people: `gcc (Debian 12.2.0) 12.2.0`. */
  readonly compiler: string;
  /** Refuses code for another machine or kernel ABI, or of other sources than this program prints for the plan. */
  requireFit(machine: string, sources: readonly SourceText[]): void;
  /** The bytes of a file, which are those that the manifest names. */
  read(name: string): Uint8Array;
  /** What is wrong with the code, with the command that makes the artifact anew. */
  problem(what: string): UserError;
}

/** What a manifest says of machine code: what it was made for, of what, by what, and the digest of each file. */
export interface CodeRecord {
  readonly abi: number;
  readonly machine: string;
  readonly compiler: string;
  readonly sources: string;
  readonly files: Readonly<Record<string, string>>;
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

const digestOf = (sources: readonly SourceText[]): string =>
  sha256(JSON.stringify(sources.map(({ name, text }) => [name, text])));

/** The record of code that was just compiled. */
export const recordOf = ({ machine, compiler, units, files }: CompiledCode, abi: number): CodeRecord => ({
  abi,
  machine,
  compiler,
  sources: digestOf(units),
  files: Object.fromEntries(files.map(({ name, bytes }) => [name, sha256(bytes)])),
});

/** The code that `record` describes, read by `readFile`. `again`: the command that makes the artifact anew. */
export function packedCode(
  record: CodeRecord,
  {
    isTrusted,
    abi,
    where,
    again,
    readFile,
  }: {
    readonly isTrusted: boolean;
    /** The kernel ABI of this program. */
    readonly abi: number;
    readonly where: string;
    readonly again: string;
    readonly readFile: (name: string) => Uint8Array;
  },
): PackedCode {
  const problem = (what: string): UserError => new UserError(`${where}: machine code: ${what}`, again);
  return {
    isTrusted,
    compiler: record.compiler,
    problem,
    requireFit: (machine, sources) => {
      if (record.machine !== machine) throw problem(`it was made for ${record.machine}, this is ${machine}`);
      if (record.abi !== abi) throw problem(`it has kernel ABI ${record.abi}, this tilewright has ${abi}`);
      if (record.sources !== digestOf(sources))
        throw problem('it was made of other kernels than this version of tilewright prints for the plan');
    },
    read: (name) => {
      const expected = Object.hasOwn(record.files, name) ? record.files[name] : undefined;
      if (expected === undefined) throw problem(`${name} is not listed in the manifest`);
      const bytes = readFile(name);
      const actual = sha256(bytes);
      if (actual !== expected)
        throw problem(
          `${name} has hash ${actual.slice(0, 12)}…, the manifest says ${expected.slice(0, 12)}…: the file is damaged`,
        );
      return bytes;
    },
  };
}

/** What a user must know before using --trust-code. */
export const TRUST =
  "--trust-code runs the artifact's own machine code, with your rights, unchecked: " +
  'use it only for artifacts of people whose programs you would run';

/** Compiles, or takes an artifact's own code where no compiler is here and the user trusts it. */
export async function compileOrUnpack<T>(
  packed: PackedCode | undefined,
  compile: () => Promise<T>,
  unpack: (packed: PackedCode) => T | Promise<T>,
): Promise<T> {
  try {
    return await compile();
  } catch (error) {
    if (!(error instanceof MissingCompiler) || packed === undefined) throw error;
    if (packed.isTrusted) return unpack(packed);
    throw new UserError(error.message, `${error.hint ?? 'Install one.'}\n${TRUST}`, { cause: error });
  }
}
